#include "torchcomms/csrc/backends/gpu/window.hpp"

#include <ATen/ATen.h>

#include "ctran/base/error.h"
#include "ctran/window/device_memory.h"
#include "torchcomms/csrc/backends/ctran/window.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"
#include "torchcomms/csrc/current_stream.hpp"
#include "torchcomms/csrc/engine_wait_hooks.hpp"
#include "torchcomms/csrc/held.hpp"

namespace torch::comms::gpu {

namespace {

using ctran::EnqueueOptions;
using ctran::gpu::Stream;

int indexOf(at::Device device) { return device.has_index() ? device.index() : 0; }

}  // namespace

GpuWindow::GpuWindow(int rank, int size, at::Device device,
                     std::unique_ptr<ctran::GpuWindowHost> host)
    : TorchCommWindow(rank, size, device), window_(rank, size, indexOf(device), std::move(host)) {}

GpuWindow::~GpuWindow() {
  EngineWaitHooks hooks;
  window_.settle(&hooks);
}

void GpuWindow::open(const at::Tensor& memory, int64_t signals) {
  void* data = memory.numel() == 0 ? nullptr : memory.mutable_data_ptr();
  EngineWaitHooks hooks;
  window_.open(data, memory.nbytes(), static_cast<size_t>(signals), &hooks);
}

void GpuWindow::close() {
  EngineWaitHooks hooks;
  if (device_) device_->look();
  window_.close(&hooks);
  if (device_) device_->close();
  device_.reset();
  buffers_.clear();
}

at::Tensor GpuWindow::newMemory(int64_t bytes) {
  const auto memory = ctran::GpuWindow::allocate(static_cast<size_t>(bytes), indexOf(get_device()));
  return at::for_blob(memory.get(), {bytes})
      .deleter([memory](void*) {})
      .options(at::TensorOptions(get_device()).dtype(at::kByte))
      .target_device(get_device())
      .make_tensor();
}

template <typename Start>
TorchCommWindow::WorkPtr GpuWindow::enqueue(OpName op, bool async_op, const OpOptions& options,
                                            const Start& start, const at::Tensor& tensor) {
  if (device_) device_->look();
  const EnqueueOptions enqueued{
      .name = toString(op), .timeout = options.timeout, .aside = async_op, .keepAlive = [&] {
        return held(tensor);
      }};
  return stream::workOf(start(stream::currentStream(get_device()), enqueued), get_device());
}

TorchCommWindow::WorkPtr GpuWindow::putBytes(const at::Tensor& source, int dst, int64_t offset,
                                             bool async_op, const OpOptions& options) {
  return enqueue(
      OpName::put, async_op, options,
      [&](Stream stream, const EnqueueOptions& enqueued) {
        return window_.put(dst, static_cast<size_t>(offset), source.const_data_ptr(),
                           source.nbytes(), stream, enqueued);
      },
      source);
}

TorchCommWindow::WorkPtr GpuWindow::getBytes(at::Tensor& destination, int src, int64_t offset,
                                             bool async_op, const OpOptions& options) {
  return enqueue(
      OpName::get, async_op, options,
      [&](Stream stream, const EnqueueOptions& enqueued) {
        return window_.get(src, static_cast<size_t>(offset), destination.mutable_data_ptr(),
                           destination.nbytes(), stream, enqueued);
      },
      destination);
}

TorchCommWindow::WorkPtr GpuWindow::flushPuts(int, bool async_op, const OpOptions& options) {
  return enqueue(OpName::flush, async_op, options,
                 [&](Stream stream, const EnqueueOptions& enqueued) {
                   return window_.flush(stream, enqueued);
                 });
}

TorchCommWindow::WorkPtr GpuWindow::addSignal(int dst, bool async_op, const OpOptions& options) {
  return enqueue(OpName::signal, async_op, options,
                 [&](Stream stream, const EnqueueOptions& enqueued) {
                   return window_.signal(dst, stream, enqueued);
                 });
}

TorchCommWindow::WorkPtr GpuWindow::awaitSignal(int src, bool async_op, const OpOptions& options) {
  return enqueue(OpName::wait_signal, async_op, options,
                 [&](Stream stream, const EnqueueOptions& enqueued) {
                   return window_.waitSignal(src, stream, enqueued);
                 });
}

TorchCommWindow::WorkPtr GpuWindow::setSignal(int64_t index, uint64_t value, int dst, bool async_op,
                                              const OpOptions& options) {
  return enqueue(OpName::signal, async_op, options,
                 [&](Stream stream, const EnqueueOptions& enqueued) {
                   return window_.setWord(dst, static_cast<size_t>(index), value, stream, enqueued);
                 });
}

TorchCommWindow::WorkPtr GpuWindow::compareSignal(int64_t index, uint64_t value, SignalCmpOp op,
                                                  bool async_op, const OpOptions& options) {
  return enqueue(OpName::wait_signal, async_op, options,
                 [&](Stream stream, const EnqueueOptions& enqueued) {
                   return window_.waitWord(static_cast<size_t>(index), engineComparison(op), value,
                                           stream, enqueued);
                 });
}

uint64_t GpuWindow::deviceWindow(uint64_t signals, uint64_t counters, uint64_t barriers) {
  const DeviceWindow::Counts counts{signals, counters, barriers};
  if (!device_) {
    device_.emplace(window_, getRank(), getSize(), indexOf(get_device()), counts);
    window_.useFromKernels();
  }
  device_->look();
  if (device_->counts() != counts) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "[TorchCommWindow]: get_device_window: the window has one with other counts",
                       {}, "window", "a window has one for kernels; make another window");
  }
  return device_->address();
}

uint64_t GpuWindow::addBuffer(const at::Tensor& tensor) {
  const int device = indexOf(get_device());
  if (indexOf(tensor.device()) != device) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "[TorchCommWindow]: register_local_buffer: the tensor is on " +
                           tensor.device().str() + ", the window on " + get_device().str(),
                       {}, "window");
  }
  const uint64_t content[] = {
      reinterpret_cast<uint64_t>(tensor.numel() == 0 ? nullptr : tensor.data_ptr()),
      tensor.nbytes()};
  static_assert(sizeof content == sizeof(torchcomms::device::RegisteredBuffer));
  const auto handle = ctran::allocateDeviceWords(std::size(content), device);
  ctran::writeDeviceWords(handle.get(), content, device);
  buffers_.push_back({handle, tensor});
  return reinterpret_cast<uint64_t>(handle.get());
}

void GpuWindow::removeBuffer(uint64_t handle) {
  const auto isIt = [handle](const Buffer& one) {
    return reinterpret_cast<uint64_t>(one.handle.get()) == handle;
  };
  if (std::erase_if(buffers_, isIt) == 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "[TorchCommWindow]: deregister_local_buffer: no buffer has this handle", {},
                       "window");
  }
}

}  // namespace torch::comms::gpu
