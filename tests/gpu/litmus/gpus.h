#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ctran/gpu/driver.h"
#include "ctran/gpu/memory.h"

/// The GPUs of one process: contexts, streams, a module and memory that all of them can reach.
namespace litmus {

using namespace ctran::gpu;

double secondsNow();

/// Every device source a group needs, compiled once for `architecture`.
std::string readFile(const std::string& path);

class Gpu {
 public:
  Gpu(int index, const std::string& cubin);

  int index() const { return index_; }
  Stream stream(int which = 0) const { return streams_[which]; }
  Function function(const char* name);
  void use() const;  ///< makes its context current on this thread

  /// Launches on `stream(which)`; arguments are passed as they are, so their types must be exact.
  template <class... Args>
  Result launch(const char* name, unsigned blocks, unsigned threads, int which, Args... args) {
    void* parameters[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
    Function kernel = function(name);
    use();
    return Driver::get().launchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, streams_[which],
                                      parameters, nullptr);
  }

 private:
  int index_;
  Context context_ = nullptr;
  Module module_ = nullptr;
  std::vector<Stream> streams_;
  std::map<std::string, Function> functions_;
};

struct Gpus {
  std::string cubin;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::vector<DeviceMemory> memory;  ///< kBytes on each, accessible from all

  static constexpr size_t kBytes = 64 << 20;

  /// All (at most `most`) devices of the machine, with the kernels of `source`.
  explicit Gpus(const std::string& source, int most = 8);

  int count() const { return static_cast<int>(gpus.size()); }
  Gpu& operator[](int i) { return *gpus[i]; }
  DevicePtr at(int gpu, size_t offset) const { return memory[gpu].address() + offset; }
  void clear(int gpu, size_t offset, size_t bytes, unsigned word = 0);
  void synchronize();  ///< every stream of every device; throws on an error
};

/// Copies device memory to a T, or a vector of T, synchronously.
template <class T>
std::vector<T> fetch(Gpu& gpu, DevicePtr from, size_t count) {
  std::vector<T> values(count);
  gpu.use();
  const Driver& driver = Driver::get();
  check(driver.memcpyDtoHAsync(values.data(), from, count * sizeof(T), gpu.stream(0)), "copy");
  check(driver.streamSynchronize(gpu.stream(0)), "cuStreamSynchronize");
  return values;
}

void put(Gpu& gpu, DevicePtr to, const void* from, size_t bytes);

double median(std::vector<double> values);

}  // namespace litmus
