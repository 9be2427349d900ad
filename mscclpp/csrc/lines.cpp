#include "lines.h"

#include <map>
#include <mutex>
#include <utility>

#include "ctran/gpu.h"
#include "ctran/window.h"
#include "engine_errors.h"
#include "host.h"

namespace mscclpp {
namespace {

constexpr size_t kLine = 64;

size_t pageBytes(LineKind kind) {
  switch (kind) {
    case LineKind::Shared:
      return 4096;
    case LineKind::OnGpu:
      return 2 << 20;  // what GPUs allocate at least
    case LineKind::ForGpus:
      return 64 << 10;
  }
  return 0;
}

std::shared_ptr<void> newPage(LineKind kind, size_t bytes, int gpu) {
  return translated([&]() -> std::shared_ptr<void> {
    switch (kind) {
      case LineKind::Shared:
        return ctran::api::allocateShared(bytes);
      case LineKind::OnGpu:
        return ctran::api::allocateOnGpu(gpu, bytes);
      case LineKind::ForGpus:
        return ctran::api::allocateForGpus(bytes);
    }
    return nullptr;
  });
}

struct Page {
  std::shared_ptr<void> memory;
  size_t used = 0;
  uint64_t owner = 0;  // the process: after a fork the page is the parent's
};

}  // namespace

std::shared_ptr<void> allocateLines(LineKind kind, size_t bytes, int gpu) {
  static std::mutex mutex;
  static auto& pages = *new std::map<std::pair<LineKind, int>, Page>;
  const size_t size = pageBytes(kind);
  const size_t wanted = (bytes + kLine - 1) / kLine * kLine;
  if (wanted > size / 4) return newPage(kind, wanted, gpu);
  const std::lock_guard lock(mutex);
  Page& page = pages[{kind, gpu}];
  if (!page.memory || wanted > size - page.used || page.owner != ownProcessToken()) {
    page = {newPage(kind, size, gpu), 0, ownProcessToken()};
  }
  void* const piece = static_cast<char*>(page.memory.get()) + page.used;
  page.used += wanted;
  return {page.memory, piece};
}

}  // namespace mscclpp
