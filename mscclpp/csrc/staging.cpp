#include "staging.h"

namespace mscclpp {

void Staging::prepare(int gpu) {
  if (stream_) return;
  memory_ = ctran::api::allocateForGpus(kBytes);
  stream_ = std::make_unique<ctran::api::OwnGpuStream>(gpu, 1);
}

void Staging::fetch(const char* fromGpu, uint64_t bytes) {
  stream_->move(data(), fromGpu, bytes);
  stream_->synchronize();
}

void Staging::place(char* onGpu, uint64_t bytes) {
  stream_->move(onGpu, data(), bytes);
  stream_->synchronize();
}

void Staging::set(uint64_t* wordOnGpu, uint64_t value) {
  stream_->set(wordOnGpu, value);
  stream_->synchronize();
}

}  // namespace mscclpp
