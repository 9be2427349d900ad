#include "torchcomms/csrc/current_stream.hpp"

#include <ATen/Context.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <optional>

#include "ctran/base/error.h"

namespace torch::comms::stream {

namespace {

using GuardImpl = c10::impl::DeviceGuardImplInterface;

/// c10::cuda::CUDAStream::stream() const. A CUDAStream is a c10::Stream and nothing else.
using NativeStream = ctran::gpu::Stream (*)(const c10::Stream*);

NativeStream findNativeStream() {
  constexpr const char* kSymbols[] = {"_ZNK3c104cuda10CUDAStream6streamEv",
                                      "_ZNK3c103hip9HIPStream6streamEv"};
  for (const char* library : {"libc10_cuda.so", "libc10_hip.so"}) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) continue;
    for (const char* symbol : kSymbols) {
      if (void* found = dlsym(handle, symbol)) return reinterpret_cast<NativeStream>(found);
    }
  }
  return nullptr;
}

/// Torch from 2.10 on knows a stream's handle for any kind of device.
template <typename Guard>
ctran::gpu::Stream nativeHandle(const Guard& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.getStreamNativeHandle(stream); }) {
    return static_cast<ctran::gpu::Stream>(guard.getStreamNativeHandle(stream));
  } else {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "This torch does not say which stream is current");
  }
}

}  // namespace

const ctran::gpu::Runtime* runtimeOf(c10::Device device) {
  using ctran::gpu::Platform;
  if (!device.is_cuda()) return nullptr;
  static const ctran::gpu::Runtime& runtime =
      ctran::gpu::Runtime::of(at::globalContext().hasROCM() ? Platform::Hip : Platform::Cuda);
  return &runtime;
}

ctran::gpu::Stream currentStream(c10::Device device) {
  if (device.is_cpu()) return ctran::gpu::Driver::get().currentHostStream();
  const GuardImpl& guard = *c10::impl::getDeviceGuardImpl(device.type());
  const c10::Stream stream = guard.getStream(device);
  static const NativeStream native = findNativeStream();
  if (device.is_cuda() && native) [[likely]]
    return native(&stream);
  return nativeHandle(guard, stream);
}

bool isCapturing(c10::Device device) {
  const auto* runtime = runtimeOf(device);
  return runtime != nullptr && runtime->isCapturing(currentStream(device));
}

c10::Device chooseDevice(c10::Device device, int rank) {
  if (device.has_index() || device.is_cpu()) return device;
  const GuardImpl& guard = *c10::impl::getDeviceGuardImpl(device.type());
  const int count = guard.deviceCount();
  if (count == 0) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "There is no device of type " + device.str() + " here");
  }
  // The first one may be what nobody has chosen, unless this has.
  static thread_local std::optional<c10::Device> chosen;
  const c10::Device current = guard.getDevice();
  if (current.index() > 0 || current == chosen) return current;
  const c10::Device own(device.type(), static_cast<c10::DeviceIndex>(rank % count));
  guard.setDevice(own);
  chosen = own;
  return own;
}

}  // namespace torch::comms::stream
