#include <cinttypes>
#include <comms/torchcomms/TorchCommBackend.hpp>
#include <cstdio>
#include <random>

#include "ctran/base/error.h"

namespace torch::comms {

std::string_view TorchCommBackend::getBackendVersion() const { unsupported("get_backend_version"); }

TorchCommBackend::WorkPtr TorchCommBackend::gather_single(at::Tensor& output,
                                                          const at::Tensor& input, int root,
                                                          bool async_op,
                                                          const GatherSingleOptions& options) {
  Tensors parts;
  if (getRank() == root) {
    const at::Tensor flat = output.view({-1});
    const int64_t count = input.numel();
    for (int r = 0; r < getSize(); ++r) parts.push_back(flat.narrow(0, r * count, count));
  }
  GatherOptions gatherOptions;
  static_cast<OpOptions&>(gatherOptions) = options;
  return gather(parts, input, root, async_op, gatherOptions);
}

TorchCommBackend::WorkPtr TorchCommBackend::reduce_scatter_quantized(
    at::Tensor&, const at::Tensor&, const ReduceOp&, const at::Tensor&, bool,
    const ReduceScatterSingleOptions&) {
  unsupported("reduce_scatter_quantized");
}

TorchCommBackend::WorkPtr TorchCommBackend::exchange_rows(const RowExchangeCall& call, bool,
                                                          const AllToAllvSingleOptions&) {
  unsupported(toString(call.op));
}

TorchCommBackend::WorkPtr TorchCommBackend::recvAnySource(at::Tensor& /*tensor*/, bool /*async_op*/,
                                                          const RecvOptions& /*options*/) {
  unsupported("recv from any source");
}

std::shared_ptr<TorchCommWindow> TorchCommBackend::new_window() { unsupported("new_window"); }
void TorchCommBackend::abort() { unsupported("abort"); }
void TorchCommBackend::setTimeout(std::chrono::milliseconds) { unsupported("set_timeout"); }
void TorchCommBackend::setHints(const Hints&) { unsupported("set_hints"); }
std::string TorchCommBackend::getInitHandle() const {
  static const uint64_t process = std::random_device()() | uint64_t{std::random_device()()} << 32;
  char unique[40];
  std::snprintf(unique, sizeof unique, "%016" PRIx64 "-%zx", process,
                reinterpret_cast<size_t>(this));
  return std::string(getBackendName()) + ":" + std::to_string(getRank()) + ":" + unique;
}
void TorchCommBackend::reconfigure(const ReconfigureOptions&) { unsupported("reconfigure"); }

void TorchCommBackend::unsupported(std::string_view what) const {
  throw ctran::Error(
      ctran::ErrorKind::Unsupported,
      std::string(what) + " not supported by backend " + std::string(getBackendName()), {},
      std::string(what), "docs/backends/README.md says which backends have it");
}

}  // namespace torch::comms
