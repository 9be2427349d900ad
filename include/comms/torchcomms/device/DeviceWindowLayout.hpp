#pragma once

/// What the host writes for TorchCommDeviceWindow.hpp, in words that every compiler knows: NVRTC
/// has no headers.
namespace torchcomms::device {

using Word = unsigned long long;
static_assert(sizeof(Word) == 8 && sizeof(void*) == 8);

/// What the functions of a device window return, and the first failure of a window.
enum Status : int {
  kOk = 0,
  kAborted = 1,     ///< the communicator has failed, or was aborted
  kTimedOut = 2,    ///< the timeout of the communicator has passed
  kOutOfRange = 3,  ///< an argument is out of range: nothing was written
};

/// What a failure is about.
enum class What : unsigned {
  Signal,       ///< a wait for one, or its number
  Counter,      ///< a wait for one, or its number
  Barrier,      ///< a wait in one, or its number
  Rank,         ///< the number of a rank
  Destination,  ///< the range of a put in the memory of `peer`
  Source,       ///< the range of a put in its buffer
};

/// In memory of the host, which host and kernels see. The first call that fails describes itself.
struct DeviceWindowReport {
  unsigned abort = 0;   ///< set by the host: every wait ends
  unsigned status = 0;  ///< a Status, which a kernel sets when the rest is written
  What what = What::Signal;
  int peer = -1;   ///< the rank that was waited for or written to; -1: any other
  Word value = 0;  ///< of the argument, or the number of what was waited for
  Word limit = 0;  ///< the argument has to be less; of ranges: the bytes that there are
  Word bytes = 0;  ///< of a range that begins at `value`
};

/// A rank, as this one reaches it.
struct DeviceWindowPeer {
  char* base = nullptr;   ///< its memory
  Word size = 0;          ///< bytes
  Word* words = nullptr;  ///< a word per signal and sender, then one per barrier and sender
};

struct DeviceWindowState {
  int rank = 0;
  int ranks = 0;
  Word signals = 0;  ///< how many there are
  Word counters = 0;
  Word barriers = 0;
  Word timeoutNanos = 0;                    ///< of a wait; 0: none
  const DeviceWindowPeer* peers = nullptr;  ///< by rank
  Word* counts = nullptr;                   ///< the counters
  Word* rounds = nullptr;                   ///< how often each barrier was entered here
  unsigned* failed = nullptr;               ///< the Status of the first failure
  DeviceWindowReport* report = nullptr;
};

/// Memory of this rank that puts read, see register_local_buffer() of TorchCommWindow.
struct RegisteredBuffer {
  char* base = nullptr;
  Word size = 0;  ///< bytes
};

}  // namespace torchcomms::device
