// How much this program has allocated by operator new, in libctran too: these stand before those of
// the C++ library.
#include "tests/hostile/heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace ctran::testing {
namespace {

std::atomic<int64_t> gLive{0}, gMost{0};

void* allocate(size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const auto size = static_cast<int64_t>(::malloc_usable_size(memory));
  const int64_t live = gLive.fetch_add(size, std::memory_order_relaxed) + size;
  int64_t most = gMost.load(std::memory_order_relaxed);
  while (live > most && !gMost.compare_exchange_weak(most, live)) continue;
  return memory;
}

void release(void* memory) {
  if (memory == nullptr) return;
  gLive.fetch_sub(static_cast<int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

int64_t heapNow() { return gLive.load(); }
void beginHeapMark() { gMost.store(gLive.load()); }
int64_t heapMost() { return gMost.load(); }

}  // namespace ctran::testing

void* operator new(size_t bytes) { return ctran::testing::allocate(bytes); }
void* operator new[](size_t bytes) { return ctran::testing::allocate(bytes); }
void operator delete(void* memory) noexcept { ctran::testing::release(memory); }
void operator delete[](void* memory) noexcept { ctran::testing::release(memory); }
void operator delete(void* memory, size_t) noexcept { ctran::testing::release(memory); }
void operator delete[](void* memory, size_t) noexcept { ctran::testing::release(memory); }
