#include "ctran/os/process_barrier.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace ctran {
namespace {

// From <linux/membarrier.h>, which older systems lack.
constexpr int kGlobalExpedited = 1 << 1;
constexpr int kRegisterGlobalExpedited = 1 << 2;

}  // namespace

bool joinProcessBarriers() {
  return ::syscall(SYS_membarrier, kRegisterGlobalExpedited, 0, 0) == 0;
}

void processBarrier() { ::syscall(SYS_membarrier, kGlobalExpedited, 0, 0); }

}  // namespace ctran
