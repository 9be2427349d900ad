#include "ctran/gpu/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "ctran/base/config.h"
#include "ctran/base/error.h"

namespace ctran::gpu {
namespace {

const ConfigString kCudaLibrary{"CTRAN_CUDA_LIBRARY", "",
                                "Path of the NVIDIA driver's library, instead of libcuda.so.1."};

void* openDriver() {
  std::string reasons;
  if (const std::string path = kCudaLibrary.get(); !path.empty()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    throw Error(ErrorKind::Unsupported, std::string("CTRAN_CUDA_LIBRARY: ") + dlerror());
  }
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    reasons += std::string("\n  ") + dlerror();
  }
  throw Error(ErrorKind::Unsupported, "the NVIDIA driver (libcuda) could not be loaded:" + reasons,
              {}, {},
              "on a machine with NVIDIA GPUs install their driver; inside a container, start it "
              "with the GPUs (--gpus all); otherwise use CPU tensors");
}

std::atomic<bool> isLoaded{false};

Driver loadDriver() {
  void* library = openDriver();  // stays loaded: torch and the process' exit may still need it
  Driver driver;
  std::string missing;
#define CTRAN_RESOLVE(name, symbol, ...)                                         \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, symbol)); \
  if (!driver.name) missing += std::string(missing.empty() ? "" : ", ") + symbol;
  CTRAN_CUDA_FUNCTIONS(CTRAN_RESOLVE)
#undef CTRAN_RESOLVE
  if (!missing.empty()) {
    int version = 0;
    if (driver.driverGetVersion) driver.driverGetVersion(&version);
    throw Error(ErrorKind::Unsupported,
                "the NVIDIA driver (CUDA " + std::to_string(version / 1000) + "." +
                    std::to_string(version % 1000 / 10) + ") lacks " + missing,
                {}, {}, "install a driver for CUDA 11.4 or later");
  }
#define CTRAN_FIND(name, symbol, ...) \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, symbol));
  CTRAN_CUDA_OPTIONAL_FUNCTIONS(CTRAN_FIND)
#undef CTRAN_FIND
  driver.currentHostStream = reinterpret_cast<decltype(driver.currentHostStream)>(
      dlsym(library, "ctranStandInCurrentStream"));
  if (Result result = driver.init(0); result != kSuccess) {
    const char* text = nullptr;
    driver.getErrorString(result, &text);
    throw Error(ErrorKind::Unsupported,
                "the NVIDIA driver did not start (error " + std::to_string(result) +
                    "): " + (text ? text : "unknown error"),
                {}, {}, "nvidia-smi says whether the GPUs are usable from here");
  }
  isLoaded.store(true, std::memory_order_release);
  return driver;
}

/// Primary contexts retained so far, by device; kept until the process ends, as torch keeps its
/// own. Never destroyed: threads that outlive main() use them.
Context primaryContext(int device) {
  static std::mutex mutex;
  static auto& contexts = *new std::vector<Context>;
  const Driver& driver = Driver::get();
  std::lock_guard lock(mutex);
  if (contexts.size() <= static_cast<size_t>(device)) contexts.resize(device + 1);
  if (!contexts[device]) {
    check(driver.devicePrimaryCtxRetain(&contexts[device], deviceHandle(device)),
          "cuDevicePrimaryCtxRetain");
  }
  return contexts[device];
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver = loadDriver();
  return driver;
}

const Driver* Driver::ifLoaded() {
  if (!isLoaded.load(std::memory_order_acquire)) {
    if (kCudaLibrary.get().empty()) {
      void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
      if (library == nullptr) return nullptr;
      dlclose(library);
    }
    try {
      get();
    } catch (const Error&) {  // a driver without GPUs
      return nullptr;
    }
  }
  return &get();
}

std::string describe(Result result) {
  const Driver& driver = Driver::get();
  const char* name = nullptr;
  const char* text = nullptr;
  driver.getErrorName(result, &name);
  driver.getErrorString(result, &text);
  return std::string(name ? name : "CUDA error") + " (" + std::to_string(result) + ")" +
         (text ? std::string(": ") + text : "");
}

void check(Result result, const char* what) {
  if (result == kSuccess) return;
  throw Error(ErrorKind::System, std::string(what) + ": " + describe(result));
}

void copyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return;
  check(Driver::get().memcpyAsync(to, from, bytes, stream), "cuMemcpyAsync");
}

DeviceGuard::DeviceGuard(int device) {
  const Driver& driver = Driver::get();
  const Context wanted = primaryContext(device);
  check(driver.ctxGetCurrent(&previous_), "cuCtxGetCurrent");
  changed_ = previous_ != wanted;
  if (changed_) check(driver.ctxSetCurrent(wanted), "cuCtxSetCurrent");
}

DeviceGuard::~DeviceGuard() {
  if (changed_) Driver::get().ctxSetCurrent(previous_);
}

Device deviceHandle(int device) {
  Device handle = 0;
  check(Driver::get().deviceGet(&handle, device), "cuDeviceGet");
  return handle;
}

int attributeOf(Device device, DeviceAttribute which) {
  int value = 0;
  check(Driver::get().deviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

std::array<unsigned, 3> pciAddress(Device device) {
  const auto part = [&](DeviceAttribute which) {
    return static_cast<unsigned>(attributeOf(device, which));
  };
  return {part(DeviceAttribute::PciDomainId), part(DeviceAttribute::PciBusId),
          part(DeviceAttribute::PciDeviceId)};
}

std::string architecture(int device) {
  const Device handle = deviceHandle(device);
  return "sm_" + std::to_string(attributeOf(handle, DeviceAttribute::ComputeCapabilityMajor)) +
         std::to_string(attributeOf(handle, DeviceAttribute::ComputeCapabilityMinor));
}

std::string deviceName(int device) {
  char name[128] = {};
  check(Driver::get().deviceGetName(name, sizeof name - 1, deviceHandle(device)),
        "cuDeviceGetName");
  return name;
}

int deviceCount() {
  int count = 0;
  check(Driver::get().deviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

std::optional<int> currentDevice() {
  const Driver& driver = Driver::get();
  Context context = nullptr;
  Device current = 0;
  check(driver.ctxGetCurrent(&context), "cuCtxGetCurrent");
  if (context == nullptr) return std::nullopt;
  check(driver.ctxGetDevice(&current), "cuCtxGetDevice");
  for (int ordinal = 0; ordinal < deviceCount(); ++ordinal) {
    if (deviceHandle(ordinal) == current) return ordinal;
  }
  return std::nullopt;
}

std::optional<int> deviceOf(const void* address) {
  struct Functions {
    decltype(Driver::pointerGetAttribute) ask = nullptr;
    decltype(Driver::threadExchangeStreamCaptureMode) exchangeMode = nullptr;
  };
  static const Functions functions = [] {
    Functions found;
    try {
      void* const library = openDriver();
      found.ask = reinterpret_cast<decltype(found.ask)>(dlsym(library, "cuPointerGetAttribute"));
      found.exchangeMode = reinterpret_cast<decltype(found.exchangeMode)>(
          dlsym(library, "cuThreadExchangeStreamCaptureMode"));
    } catch (const Error&) {  // there is no driver
    }
    return found;
  }();
  if (functions.ask == nullptr || functions.exchangeMode == nullptr) return std::nullopt;
  const DevicePtr at = addressOf(address);
  unsigned type = 0;
  int device = 0;
  CaptureMode mode = CaptureMode::Relaxed;  // some thread may be capturing
  functions.exchangeMode(&mode);
  Result result = functions.ask(&type, PointerAttribute::MemoryType, at);
  const bool isDevice = result == kSuccess && type == kMemoryOfDevice;
  if (isDevice) result = functions.ask(&device, PointerAttribute::DeviceOrdinal, at);
  functions.exchangeMode(&mode);
  if (!isDevice) return std::nullopt;
  check(result, "cuPointerGetAttribute");
  return device;
}

}  // namespace ctran::gpu
