#include "torchcomms/csrc/c10d/window_wrapper.hpp"

#if TORCHCOMMS_TORCH_SINCE(15)

namespace torch::comms {

namespace {

using std::chrono::milliseconds;

template <typename Options, typename Given>
Options optionsOf(const Given& given, milliseconds timeout) {
  Options options;
  options.hints.insert(given.hints.begin(), given.hints.end());
  options.timeout = timeout;
  return options;
}

}  // namespace

void WindowWrapper::tensor_register(const at::Tensor& tensor, bool owning) {
  window_->tensor_register(tensor, owning);
}

void WindowWrapper::tensor_deregister() { window_->tensor_deregister(); }

WindowWrapper::WorkPtr WindowWrapper::put(const at::Tensor& tensor, int64_t dstRank,
                                          int64_t targetOffsetNelems, bool asyncOp,
                                          const c10d::PutOptions& opts) {
  return issue_(OpName::put, opts.timeout, asyncOp, [&](milliseconds timeout) {
    return window_->put(tensor, static_cast<int>(dstRank), targetOffsetNelems, /*async_op=*/true,
                        optionsOf<PutOptions>(opts, timeout));
  });
}

at::Tensor WindowWrapper::map_remote_tensor(int64_t rank) {
  return window_->map_remote_tensor(static_cast<int>(rank));
}

WindowWrapper::WorkPtr WindowWrapper::signal(int64_t peerRank, bool asyncOp,
                                             const c10d::SignalOptions& opts) {
  return issue_(OpName::signal, opts.timeout, asyncOp, [&](milliseconds timeout) {
    return window_->signal(static_cast<int>(peerRank), /*async_op=*/true,
                           optionsOf<SignalOptions>(opts, timeout));
  });
}

WindowWrapper::WorkPtr WindowWrapper::wait_signal(int64_t peerRank, bool asyncOp,
                                                  const c10d::WaitSignalOptions& opts) {
  return issue_(OpName::wait_signal, opts.timeout, asyncOp, [&](milliseconds timeout) {
    return window_->wait_signal(static_cast<int>(peerRank), /*async_op=*/true,
                                optionsOf<WaitSignalOptions>(opts, timeout));
  });
}

c10d::WindowAttr WindowWrapper::get_attr(int64_t peerRank) {
  const bool unified = window_->get_attr(static_cast<int>(peerRank)).accessType ==
                       TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
  return {unified ? c10d::WindowAccessType::UNIFIED : c10d::WindowAccessType::SEPARATE};
}

}  // namespace torch::comms

#endif
