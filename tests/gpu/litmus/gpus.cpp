#include "tests/gpu/litmus/gpus.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "ctran/gpu/nvrtc.h"

namespace litmus {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string readFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

Gpu::Gpu(int index, const std::string& cubin) : index_(index) {
  const Driver& driver = Driver::get();
  DeviceGuard guard(index);
  check(driver.ctxGetCurrent(&context_), "cuCtxGetCurrent");
  check(driver.moduleLoadData(&module_, cubin.data()), "cuModuleLoadData");
  for (int i = 0; i < 3; ++i) {
    streams_.push_back(nullptr);
    check(driver.streamCreateWithPriority(&streams_.back(), kStreamNonBlocking, 0),
          "cuStreamCreateWithPriority");
  }
}

void Gpu::use() const { check(Driver::get().ctxSetCurrent(context_), "cuCtxSetCurrent"); }

Function Gpu::function(const char* name) {
  Function& function = functions_[name];
  if (!function) {
    use();
    check(Driver::get().moduleGetFunction(&function, module_, name), name);
  }
  return function;
}

Gpus::Gpus(const std::string& source, int most) {
  const int devices = std::min(deviceCount(), most);
  cubin = compile({"litmus", source, architecture(0), {}});
  for (int i = 0; i < devices; ++i) gpus.push_back(std::make_unique<Gpu>(i, cubin));
  for (int i = 0; i < devices; ++i) {
    memory.push_back(DeviceMemory::allocate(i, kBytes));
    for (int peer = 0; peer < devices; ++peer) {
      if (peer != i) memory[i].allow(peer);
    }
    clear(i, 0, kBytes);
  }
}

void Gpus::clear(int gpu, size_t offset, size_t bytes, unsigned word) {
  const Driver& driver = Driver::get();
  gpus[gpu]->use();
  check(driver.memsetD32Async(at(gpu, offset), word, bytes / 4, gpus[gpu]->stream(0)), "memset");
  check(driver.streamSynchronize(gpus[gpu]->stream(0)), "cuStreamSynchronize");
}

void Gpus::synchronize() {
  for (auto& gpu : gpus) {
    gpu->use();
    for (int i = 0; i < 3; ++i) {
      check(Driver::get().streamSynchronize(gpu->stream(i)), "cuStreamSynchronize");
    }
  }
}

void put(Gpu& gpu, DevicePtr to, const void* from, size_t bytes) {
  const Driver& driver = Driver::get();
  gpu.use();
  check(driver.memcpyHtoDAsync(to, from, bytes, gpu.stream(0)), "copy");
  check(driver.streamSynchronize(gpu.stream(0)), "cuStreamSynchronize");
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace litmus
