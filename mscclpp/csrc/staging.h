#pragma once

#include <cstdint>
#include <memory>

#include "ctran/gpu.h"

namespace mscclpp {

/// Host memory that data of GPUs passes through, and the stream that moves it.
class Staging {
 public:
  static constexpr uint64_t kBytes = 4 << 20;

  /// Allocates; later calls do nothing. While kernels wait for this process it must not be the
  /// first call.
  void prepare(int gpu);
  char* data() const { return static_cast<char*>(memory_.get()); }
  /// All return when it is done. At most kBytes.
  void fetch(const char* fromGpu, uint64_t bytes);
  void place(char* onGpu, uint64_t bytes);
  void set(uint64_t* wordOnGpu, uint64_t value);

 private:
  std::shared_ptr<void> memory_;
  std::unique_ptr<ctran::api::OwnGpuStream> stream_;
};

}  // namespace mscclpp
