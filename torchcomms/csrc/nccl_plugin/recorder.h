#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// What NCCL tells of its communicators, written where `torchcomms analyze`, `top` and `trace` read
/// it (ctran/trace). None of this throws, waits or takes memory per operation.
namespace torchcomms::nccl_plugin {

/// One operation, as NCCL describes it.
struct Call {
  bool isMessage = false;
  std::string_view function, type;  ///< NCCL's names
  uint64_t count = 0;
  int root = 0;  ///< or the peer
  std::string_view algorithm, protocol;
  int channels = 0;
};

struct Introduction {
  std::string name;
  uint64_t comm = 0;  ///< the same number on all of its ranks; 0: not known
  int rank = 0, size = 1;
  bool seesKernels = false;  ///< NCCL tells when kernels run, not only when they are launched
};

/// Contexts and handles are numbers, not addresses: whatever NCCL says of a communicator or an
/// operation that is no more is ignored. 0 is none of either.
using Context = uint64_t;
using Handle = uint64_t;

/// 0 if there is no room for another communicator, or for its memory; the log says so.
Context open(const Introduction& who) noexcept;
void close(Context context) noexcept;

/// An operation is about to be launched. 0 if it is none that is recorded.
Handle begin(Context context, const Call& call) noexcept;
/// One of its kernel's channels runs from now on, until `end`.
Handle beginKernel(Handle operation) noexcept;
/// An operation has been launched, or a channel of its kernel has ended.
void end(Handle handle) noexcept;

}  // namespace torchcomms::nccl_plugin
