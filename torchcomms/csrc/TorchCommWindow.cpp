#include <ATen/ATen.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <comms/torchcomms/TorchCommWindow.hpp>
#include <optional>
#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/signature.h"
#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/call_recorder.hpp"
#include "torchcomms/csrc/current_stream.hpp"
#include "torchcomms/csrc/hook_registry.hpp"
#include "torchcomms/csrc/profiled_call.hpp"

namespace torch::comms {

namespace {

/// Signals per rank of a window that says nothing else.
constexpr int64_t kSignals = 8;
/// Signals, counters or barriers of a device window at most.
constexpr int64_t kMostForKernels = 1 << 20;

[[noreturn]] void reject(const std::string& message, const std::string& hint = {}) {
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, "[TorchCommWindow]: " + message, {},
                     "window", hint);
}

[[noreturn]] void withoutKernels(const char* what) {
  throw ctran::Error(ctran::ErrorKind::Unsupported,
                     std::string("[TorchCommWindow]: ") + what +
                         ": CUDA kernels do not reach the memory of this window",
                     {}, "window",
                     "they do in windows of CUDA tensors, on backends ctran, nccl and ncclx; here "
                     "use put(), get(), signal() and wait_signal()");
}

at::Tensor flatBytes(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())})
      .options(tensor.options().dtype(at::kByte))
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

template <typename Args, typename Issue, typename... Fields>
TorchCommWindow::WorkPtr TorchCommWindow::hooked(OpName op, bool async_op, const OpOptions& options,
                                                 const RecordedSignal& signal, Issue issue,
                                                 const Fields&... fields) {
  const bool isHooked = hooks_ && hooks_->active();
  const bool isSeen = ProfiledCall::isSeen();
  CallRecorder* const recorder = hooks_ ? hooks_->recorder() : nullptr;
  if (!isHooked && !isSeen && recorder == nullptr) [[likely]]
    return issue();
  const auto timeout =
      options.timeout == kNoTimeout ? backend_->getOptions().timeout : options.timeout;
  const PreHookArgs args = Args{{async_op, timeout}, fields...};
  std::optional<ProfiledCall> profiled;
  if (isSeen) profiled.emplace(*backend_, op, viewOf(args));
  const auto recorded = [&] {
    return recorder != nullptr ? recorder->around(op, args, signal, issue) : issue();
  };
  return isHooked ? hooks_->around(op, args, recorded) : recorded();
}

RecordedSignal TorchCommWindow::counted(std::vector<uint32_t>& counts, int rank) {
  if (!hooks_ || hooks_->recorder() == nullptr) return {};
  // What replays send and wait for the device alone counts.
  isReplayed_ = isReplayed_ || stream::isCapturing(device_);
  if (isReplayed_) return unnumbered();
  counts.resize(static_cast<size_t>(size_));
  return {0, ctran::windowTag(number_, ++counts[static_cast<size_t>(rank)])};
}

RecordedSignal TorchCommWindow::unnumbered() const { return {0, ctran::windowTag(number_, 0)}; }

RecordedSignal TorchCommWindow::numbered(int64_t index) const {
  return {static_cast<uint64_t>(index) + 1, ctran::windowTag(number_, 0)};
}

void TorchCommWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  if (open_) reject("Double registration error.", "call tensor_deregister() on all ranks first");
  checkTensor(tensor, "tensor_register");
  moveToShared(tensor);
  expose(tensor, kSignals);
  if (owning) tensor_ = tensor;
}

void TorchCommWindow::allocate(int64_t bytes, int64_t signals) {
  if (bytes < 0) reject("window_allocate: window_size must not be negative");
  if (signals < 0) reject("window_allocate: signal_size must not be negative");
  at::Tensor memory = newMemory(bytes);
  expose(memory, signals);
  tensor_ = std::move(memory);
}

void TorchCommWindow::expose(const at::Tensor& tensor, int64_t signals) {
  dtype_ = tensor.scalar_type();
  open(flatBytes(tensor), signals);
  open_ = true;
  shape_ = tensor.sizes().vec();
}

void TorchCommWindow::tensor_deregister() {
  checkOpen();
  close();
  open_ = false;
  tensor_.reset();
}

TorchCommWindow::WorkPtr TorchCommWindow::put(const at::Tensor& tensor, int dst, int64_t offset,
                                              bool async_op, const PutOptions& options) {
  checkOpen();
  checkRank(dst);
  checkTensor(tensor, "put");
  checkType(tensor, dst, "put");
  const int64_t at = checkedOffset(dst, offset, tensor.numel(), tensor.element_size(), "put");
  return hooked<PutPreHookArgs>(
      OpName::put, async_op, options, unnumbered(),
      [&] { return putBytes(tensor, dst, at, async_op, options); }, tensor, dst, offset);
}

TorchCommWindow::WorkPtr TorchCommWindow::get(at::Tensor& tensor, int src, int64_t offset,
                                              bool async_op, const GetOptions& options) {
  checkOpen();
  checkRank(src);
  checkTensor(tensor, "get");
  checkType(tensor, src, "get");
  const int64_t at = checkedOffset(src, offset, tensor.numel(), tensor.element_size(), "get");
  return hooked<GetPreHookArgs>(
      OpName::get, async_op, options, unnumbered(),
      [&] { return getBytes(tensor, src, at, async_op, options); }, tensor, src, offset);
}

TorchCommWindow::WorkPtr TorchCommWindow::flush(int dst, bool async_op,
                                                const FlushOptions& options) {
  checkOpen();
  checkRank(dst);
  return hooked<FlushPreHookArgs>(
      OpName::flush, async_op, options, unnumbered(),
      [&] { return flushPuts(dst, async_op, options); }, dst);
}

TorchCommWindow::WorkPtr TorchCommWindow::signal(int dst, bool async_op,
                                                 const SignalOptions& options) {
  checkOpen();
  checkRank(dst);
  return hooked<SignalPreHookArgs>(
      OpName::signal, async_op, options, counted(signals_, dst),
      [&] { return addSignal(dst, async_op, options); }, dst);
}

TorchCommWindow::WorkPtr TorchCommWindow::wait_signal(int src, bool async_op,
                                                      const WaitSignalOptions& options) {
  checkOpen();
  checkRank(src);
  return hooked<WaitSignalPreHookArgs>(
      OpName::wait_signal, async_op, options, counted(waits_, src),
      [&] { return awaitSignal(src, async_op, options); }, src);
}

TorchCommWindow::WorkPtr TorchCommWindow::signal(int64_t index, uint64_t value, int dst,
                                                 bool async_op, const SignalOptions& options) {
  checkOpen();
  checkRank(dst);
  checkSignal(dst, index);
  return hooked<SignalPreHookArgs>(
      OpName::signal, async_op, options, numbered(index),
      [&] { return setSignal(index, value, dst, async_op, options); }, dst);
}

TorchCommWindow::WorkPtr TorchCommWindow::wait_signal(int64_t index, uint64_t value, SignalCmpOp op,
                                                      bool async_op,
                                                      const WaitSignalOptions& options) {
  checkOpen();
  checkSignal(rank_, index);
  return hooked<WaitSignalPreHookArgs>(
      OpName::wait_signal, async_op, options, numbered(index),
      [&] { return compareSignal(index, value, op, async_op, options); }, -1);
}

at::Tensor TorchCommWindow::map_remote_tensor(int rank) {
  checkOpen();
  checkRank(rank);
  if (rank == rank_ && tensor_) return *tensor_;
  const int64_t elementSize = static_cast<int64_t>(c10::elementSize(dtype_));
  const int64_t count = bytesOf(rank) / elementSize;
  const bool alike = bytesOf(rank) == bytesOf(rank_);
  return get_tensor(rank, alike ? at::IntArrayRef(shape_) : at::IntArrayRef(count), dtype_, 0);
}

at::Tensor TorchCommWindow::get_tensor(int rank, at::IntArrayRef sizes, at::ScalarType dtype,
                                       int64_t offset) {
  checkOpen();
  checkRank(rank);
  if (c10::isQIntType(dtype)) reject("get_tensor: memory has no scales for a quantized type");
  int64_t count = 1;
  for (const int64_t size : sizes) {
    if (size < 0) reject("get_tensor: sizes must not be negative");
    if (__builtin_mul_overflow(count, size, &count)) reject("get_tensor: sizes are too large");
  }
  const int64_t at = checkedOffset(rank, offset, count,
                                   static_cast<int64_t>(c10::elementSize(dtype)), "get_tensor");
  if (accessOf(rank) != TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "[TorchCommWindow]: the memory of rank " + std::to_string(rank) +
                           " cannot be mapped: its access type is SEPARATE",
                       {rank}, "window",
                       "use put() and get(), or memory of window_allocate() or of the "
                       "communicator's allocator");
  }
  const std::shared_ptr<void> memory = mapped(rank);
  void* const data = static_cast<std::byte*>(memory.get()) + at;
  // The view holds the mapping, or the tensor itself, so that it may outlive the window.
  return at::for_blob(data, sizes)
      .deleter([memory, own = rank == rank_ ? tensor_ : std::nullopt](void*) {})
      .options(at::TensorOptions(device_).dtype(dtype))
      .target_device(device_)  // also where the memory itself is another one's
      .make_tensor();
}

uint64_t TorchCommWindow::get_device_window(int64_t signal_count, int64_t counter_count,
                                            int64_t barrier_count) {
  checkOpen();
  const auto checked = [this](int64_t count, const char* what) {
    if (count < -1 || count > kMostForKernels) {
      reject(std::string("get_device_window: ") + what + " must be in range [0, " +
             std::to_string(kMostForKernels) + "], or -1 for as many as ranks, but got " +
             std::to_string(count));
    }
    return static_cast<uint64_t>(count == -1 ? size_ : count);
  };
  return deviceWindow(checked(signal_count, "signal_count"),
                      checked(counter_count, "counter_count"),
                      checked(barrier_count, "barrier_count"));
}

uint64_t TorchCommWindow::register_local_buffer(const at::Tensor& tensor) {
  checkOpen();
  checkTensor(tensor, "register_local_buffer");
  return addBuffer(tensor);
}

void TorchCommWindow::deregister_local_buffer(uint64_t handle) {
  checkOpen();
  removeBuffer(handle);
}

uint64_t TorchCommWindow::get_nvlink_address(int peer) {
  checkOpen();
  checkRank(peer);
  return deviceAddress(peer);
}

uint64_t TorchCommWindow::get_multimem_address() {
  throw ctran::Error(ctran::ErrorKind::Unsupported,
                     "[TorchCommWindow]: get_multimem_address: NVLink multicast is not used, as it "
                     "can put the GPUs of a shared host out of service",
                     {}, "window", "use get_nvlink_address() of each rank");
}

uint64_t TorchCommWindow::deviceWindow(uint64_t, uint64_t, uint64_t) {
  withoutKernels("get_device_window");
}

uint64_t TorchCommWindow::addBuffer(const at::Tensor&) { withoutKernels("register_local_buffer"); }

void TorchCommWindow::removeBuffer(uint64_t) { withoutKernels("deregister_local_buffer"); }

uint64_t TorchCommWindow::deviceAddress(int) const { withoutKernels("get_nvlink_address"); }

TorchCommWindowAttr TorchCommWindow::get_attr(int rank) const {
  checkOpen();
  checkRank(rank);
  return {accessOf(rank)};
}

int64_t TorchCommWindow::get_size() const {
  checkOpen();
  return bytesOf(rank_);
}

at::ScalarType TorchCommWindow::dtype() const {
  checkOpen();
  return dtype_;
}

at::IntArrayRef TorchCommWindow::shape() const {
  checkOpen();
  return shape_;
}

void TorchCommWindow::checkOpen() const {
  if (!open_) reject("no tensor is registered", "call tensor_register(tensor) on all ranks");
}

void TorchCommWindow::checkRank(int rank) const {
  if (rank < 0 || rank >= size_) {
    reject("rank must be in range [0, " + std::to_string(size_) + "), but got " +
           std::to_string(rank));
  }
}

void TorchCommWindow::checkTensor(const at::Tensor& tensor, const char* what) const {
  const std::string prefix = std::string("[") + what + "]: ";
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_nested() ||
      !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) {
    reject(prefix + "contiguous tensor required.", "call contiguous() first");
  }
  if (tensor.device().type() != device_.type()) {
    reject(prefix + "the tensor is on " + tensor.device().str() + ", the window on " +
           device_.str());
  }
  if (!hasMemory(tensor) && device_.type() != at::kMeta) {
    const auto [missing, hint] = missingMemory(tensor);
    reject(prefix + missing, hint);
  }
}

void TorchCommWindow::checkType(const at::Tensor& tensor, int rank, const char* what) const {
  const auto type = typeOf(rank).value_or(at::kByte);
  if (type == at::kByte || tensor.scalar_type() == at::kByte || tensor.scalar_type() == type) {
    return;
  }
  reject(std::string("[") + what + "]: the tensor is " + c10::toString(tensor.scalar_type()) +
             ", the memory of rank " + std::to_string(rank) + " " + c10::toString(type),
         "convert the tensor, or pass tensor.view(torch.uint8) to move bytes");
}

/// In bytes.
int64_t TorchCommWindow::checkedOffset(int rank, int64_t offset, int64_t count, int64_t elementSize,
                                       const char* what) const {
  const int64_t elements = bytesOf(rank) / elementSize;
  if (offset < 0 || offset > elements || count > elements - offset) {
    reject(std::string("[") + what + "]: Requested size (" + std::to_string(count * elementSize) +
           " bytes at element " + std::to_string(offset) + ") exceeds the window size (" +
           std::to_string(bytesOf(rank)) + " bytes) of rank " + std::to_string(rank));
  }
  return offset * elementSize;
}

void TorchCommWindow::checkSignal(int rank, int64_t index) const {
  if (index < 0 || index >= signalsOf(rank)) {
    reject("signal_disp must be in range [0, " + std::to_string(signalsOf(rank)) + "), but got " +
               std::to_string(index),
           "signal_size of window_allocate() is in bytes, eight per signal");
  }
}

}  // namespace torch::comms
