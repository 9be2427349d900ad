#pragma once

#include <comms/torchcomms/device/DeviceWindowLayout.hpp>

/// A window of torchcomms for kernels: the pointer that TorchCommWindow::get_device_window() gives.
/// nvcc and NVRTC compile it for GPUs, without other headers than the one above. A compiler of the
/// host takes it behind a header that has CUDA's names, such as <mscclpp/gpu.hpp>, by which kernels
/// run on the host in tests.
#if defined(__CUDACC__)
#define TORCHCOMMS_DEVICE __forceinline__ __device__
#else
#include <chrono>
#define TORCHCOMMS_DEVICE inline
#endif

namespace torchcomms::device {

/// The threads that make a call together, all with the same arguments. A warp or a block that calls
/// has all its threads there.
enum class CoopScope { THREAD, WARP, BLOCK };
enum class SignalOp { SET, ADD };
/// The value that is there <op> the value waited for, both without a sign.
enum class CmpOp { EQ, NE, LT, LE, GT, GE };

namespace detail {

// Words that other blocks, GPUs and the host read or write meanwhile.

#if defined(__CUDACC__)

TORCHCOMMS_DEVICE Word loadAcquire(const Word* from) {
  Word value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
TORCHCOMMS_DEVICE unsigned loadRelaxed(const unsigned* from) {
  unsigned value;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
TORCHCOMMS_DEVICE void storeRelease(Word* to, Word value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
TORCHCOMMS_DEVICE void storeRelease(unsigned* to, unsigned value) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
TORCHCOMMS_DEVICE void addRelease(Word* to, Word value) {
  asm volatile("red.release.sys.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
/// Whether it was 0, and is `value`.
TORCHCOMMS_DEVICE bool isFirst(unsigned* at, unsigned value) {
  return atomicCAS(at, 0U, value) == 0U;
}
TORCHCOMMS_DEVICE Word nanoseconds() {
  Word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
TORCHCOMMS_DEVICE void pause() {}

#else

inline Word loadAcquire(const Word* from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
inline unsigned loadRelaxed(const unsigned* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline void storeRelease(Word* to, Word value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
inline void storeRelease(unsigned* to, unsigned value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
inline void addRelease(Word* to, Word value) { __atomic_fetch_add(to, value, __ATOMIC_RELEASE); }
inline bool isFirst(unsigned* at, unsigned value) {
  unsigned expected = 0;
  return __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}
inline Word nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<Word>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}
inline void pause() { __nanosleep(0); }

#endif

TORCHCOMMS_DEVICE bool holds(CmpOp op, Word there, Word value) {
  switch (op) {
    case CmpOp::EQ:
      return there == value;
    case CmpOp::NE:
      return there != value;
    case CmpOp::LT:
      return there < value;
    case CmpOp::LE:
      return there <= value;
    case CmpOp::GT:
      return there > value;
    default:
      return there >= value;
  }
}

/// The threads of a scope that this one belongs to.
struct Group {
  unsigned thread;  ///< of `threads`
  unsigned threads;
};

TORCHCOMMS_DEVICE Group groupOf(CoopScope scope) {
  constexpr unsigned kWarp = 32;
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  if (scope == CoopScope::BLOCK) return {thread, blockDim.x * blockDim.y * blockDim.z};
  if (scope == CoopScope::WARP) return {thread % kWarp, kWarp};
  return {0, 1};
}

/// What a thread of the scope has written before, and what it has seen, is seen by the others.
TORCHCOMMS_DEVICE void sync(CoopScope scope) {
  if (scope == CoopScope::BLOCK) __syncthreads();
  if (scope == CoopScope::WARP) __syncwarp();
}

/// The same. Returns what the first thread of the scope has passed; others pass false.
TORCHCOMMS_DEVICE bool syncOr(CoopScope scope, bool value) {
  sync(scope);
  if (scope == CoopScope::THREAD) return value;
  if (scope == CoopScope::WARP) return __shfl_sync(~0U, static_cast<int>(value), 0) != 0;
#if defined(__CUDACC__)
  return __syncthreads_or(value) != 0;
#else
  __shared__ bool told;
  if (groupOf(scope).thread == 0) told = value;
  __syncthreads();
  const bool result = told;
  __syncthreads();
  return result;
#endif
}

template <class Unit>
TORCHCOMMS_DEVICE void copyUnits(char* to, const char* from, Word bytes, const Group& group) {
  auto* const target = reinterpret_cast<Unit*>(to);
  const auto* const origin = reinterpret_cast<const Unit*>(from);
  constexpr unsigned kAtOnce = 4;  // loads of a thread that are under way together
  const Word count = bytes / sizeof(Unit), step = group.threads;
  Word i = group.thread;
  for (; i + (kAtOnce - 1) * step < count; i += kAtOnce * step) {
    Unit held[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) held[k] = origin[i + k * step];
    for (unsigned k = 0; k < kAtOnce; ++k) target[i + k * step] = held[k];
  }
  for (; i < count; i += step) target[i] = origin[i];
}

/// Any address, any size; 16 bytes at a time where both addresses are equally aligned.
TORCHCOMMS_DEVICE void copyBytes(char* to, const char* from, Word bytes, const Group& group) {
  const Word target = reinterpret_cast<Word>(to), origin = reinterpret_cast<Word>(from);
  Word head = bytes, body = 0;
  if ((target ^ origin) % sizeof(uint4) == 0) {
    head = (sizeof(uint4) - target % sizeof(uint4)) % sizeof(uint4);
    if (head > bytes) head = bytes;
    body = (bytes - head) / sizeof(uint4) * sizeof(uint4);
  }
  copyUnits<char>(to, from, head, group);
  copyUnits<uint4>(to + head, from + head, body, group);
  copyUnits<char>(to + head + body, from + head + body, bytes - head - body, group);
}

}  // namespace detail

/// Memory that the ranks of one host map from each other's GPUs, with signals, counters and
/// barriers. A put is a copy by the threads that call it.
///
/// A signal has a word per sender: SET and ADD change the sender's, and the value of the signal is
/// the sum. Who has waited for a signal sees what its senders put before they signalled. A counter
/// is this rank's own, and counts puts whose buffer may be written again.
///
/// Functions that return int return a Status, the same on all threads of the scope. Each wait ends
/// by the timeout of the communicator at the latest, or when the communicator fails; then, and
/// where an argument is out of range, all waits of the window end from then on, and the
/// communicator gets an error that names the rank. All functions may be called by any number of
/// blocks at a time, except that one group of threads at a time is in a barrier of one number.
struct TorchCommDeviceWindow : DeviceWindowState {
  TORCHCOMMS_DEVICE int rank() const { return DeviceWindowState::rank; }
  TORCHCOMMS_DEVICE int num_ranks() const { return ranks; }
  /// This rank's memory.
  TORCHCOMMS_DEVICE void* base() const { return own().base; }
  /// Its bytes.
  TORCHCOMMS_DEVICE Word size() const { return own().size; }
  /// The memory of a rank, as this GPU loads from it and stores to it; null if there is no such
  /// rank.
  TORCHCOMMS_DEVICE void* get_nvlink_address(int peer) const {
    return isRank(peer) ? peers[peer].base : nullptr;
  }

  /// Writes `bytes` of `buffer`, from byte `src_offset` on, at byte `dst_offset` of the memory of
  /// `dst_rank`. Adds 1 to its signal `signal_id`, behind the data, and to the counter `counter_id`
  /// here; -1: to none.
  TORCHCOMMS_DEVICE int put(Word dst_offset, const RegisteredBuffer& buffer, Word src_offset,
                            int dst_rank, Word bytes, int signal_id = -1, int counter_id = -1,
                            CoopScope scope = CoopScope::THREAD) {
    const detail::Group group = detail::groupOf(scope);
    if (!isRank(dst_rank)) return refuse(group, What::Rank, toWord(dst_rank), toWord(ranks));
    const DeviceWindowPeer& peer = peers[dst_rank];
    if (!isInside(dst_offset, bytes, peer.size)) {
      return refuse(group, What::Destination, dst_offset, peer.size, dst_rank, bytes);
    }
    if (!isInside(src_offset, bytes, buffer.size)) {
      return refuse(group, What::Source, src_offset, buffer.size, dst_rank, bytes);
    }
    if (signal_id != -1 && toWord(signal_id) >= signals) {
      return refuse(group, What::Signal, toWord(signal_id), signals, dst_rank);
    }
    if (counter_id != -1 && toWord(counter_id) >= counters) {
      return refuse(group, What::Counter, toWord(counter_id), counters, dst_rank);
    }
    detail::copyBytes(peer.base + dst_offset, buffer.base + src_offset, bytes, group);
    detail::sync(scope);
    if (group.thread == 0) {
      // The scope's stores come before these releases: the leader has met all who stored.
      if (signal_id != -1) detail::addRelease(signalWord(dst_rank, signal_id), 1);
      if (counter_id != -1) detail::addRelease(counts + counter_id, 1);
    }
    return kOk;
  }

  /// Changes this rank's word of signal `signal_id` of `peer`, behind all that the scope has put.
  TORCHCOMMS_DEVICE int signal(int peer, int signal_id, SignalOp op = SignalOp::ADD, Word value = 1,
                               CoopScope scope = CoopScope::THREAD) {
    const detail::Group group = detail::groupOf(scope);
    if (!isRank(peer)) return refuse(group, What::Rank, toWord(peer), toWord(ranks));
    if (toWord(signal_id) >= signals) {
      return refuse(group, What::Signal, toWord(signal_id), signals, peer);
    }
    detail::sync(scope);
    if (group.thread == 0) {
      Word* const word = signalWord(peer, signal_id);
      if (op == SignalOp::ADD) {
        detail::addRelease(word, value);
      } else {
        detail::storeRelease(word, value);
      }
    }
    return kOk;
  }

  /// Waits until the value of signal `signal_id` of this rank compares so.
  TORCHCOMMS_DEVICE int wait_signal(int signal_id, CmpOp op, Word value,
                                    CoopScope scope = CoopScope::THREAD) {
    const detail::Group group = detail::groupOf(scope);
    if (toWord(signal_id) >= signals) {
      return refuse(group, What::Signal, toWord(signal_id), signals);
    }
    return wait(scope, What::Signal, -1, signal_id,
                [&] { return detail::holds(op, sumOf(signal_id), value); });
  }

  /// The same of the word of `peer` alone.
  TORCHCOMMS_DEVICE int wait_signal_from(int peer, int signal_id, CmpOp op, Word value,
                                         CoopScope scope = CoopScope::THREAD) {
    const detail::Group group = detail::groupOf(scope);
    if (!isRank(peer)) return refuse(group, What::Rank, toWord(peer), toWord(ranks));
    if (toWord(signal_id) >= signals) {
      return refuse(group, What::Signal, toWord(signal_id), signals, peer);
    }
    const Word* const word = own().words + toWord(signal_id) * toWord(ranks) + peer;
    return wait(scope, What::Signal, peer, signal_id,
                [&] { return detail::holds(op, detail::loadAcquire(word), value); });
  }

  /// The value of a signal of this rank; 0 if there is no such signal.
  TORCHCOMMS_DEVICE Word read_signal(int signal_id) {
    if (toWord(signal_id) < signals) return sumOf(signal_id);
    refuse({0, 1}, What::Signal, toWord(signal_id), signals);
    return 0;
  }

  /// Sets a signal of this rank to 0. No rank sends it meanwhile.
  TORCHCOMMS_DEVICE int reset_signal(int signal_id) {
    if (toWord(signal_id) >= signals) {
      return refuse({0, 1}, What::Signal, toWord(signal_id), signals);
    }
    for (int r = 0; r < ranks; ++r) {
      detail::storeRelease(own().words + toWord(signal_id) * toWord(ranks) + r, 0);
    }
    return kOk;
  }

  /// Waits until a counter of this rank compares so.
  TORCHCOMMS_DEVICE int wait_counter(int counter_id, CmpOp op, Word value,
                                     CoopScope scope = CoopScope::THREAD) {
    const detail::Group group = detail::groupOf(scope);
    if (toWord(counter_id) >= counters) {
      return refuse(group, What::Counter, toWord(counter_id), counters);
    }
    return wait(scope, What::Counter, rank(), counter_id,
                [&] { return detail::holds(op, detail::loadAcquire(counts + counter_id), value); });
  }

  /// The value of a counter; 0 if there is no such counter.
  TORCHCOMMS_DEVICE Word read_counter(int counter_id) {
    if (toWord(counter_id) < counters) return detail::loadAcquire(counts + counter_id);
    refuse({0, 1}, What::Counter, toWord(counter_id), counters);
    return 0;
  }

  /// Sets a counter to 0. No put counts there meanwhile.
  TORCHCOMMS_DEVICE int reset_counter(int counter_id) {
    if (toWord(counter_id) >= counters) {
      return refuse({0, 1}, What::Counter, toWord(counter_id), counters);
    }
    detail::storeRelease(counts + counter_id, 0);
    return kOk;
  }

  /// What this thread has read and written before comes before what it does later, for all GPUs.
  TORCHCOMMS_DEVICE void fence() const { __threadfence_system(); }

  /// Ends when all that the scope has put is there, and its buffers may be written again.
  TORCHCOMMS_DEVICE int flush(CoopScope scope = CoopScope::THREAD) const {
    __threadfence_system();
    detail::sync(scope);
    return kOk;
  }

  /// Waits until all ranks have come to the barrier of this number. What a rank's scope has put
  /// before is seen by all after it.
  TORCHCOMMS_DEVICE int barrier(int barrier_id, CoopScope scope = CoopScope::THREAD) {
    const detail::Group group = detail::groupOf(scope);
    if (toWord(barrier_id) >= barriers) {
      return refuse(group, What::Barrier, toWord(barrier_id), barriers);
    }
    detail::sync(scope);
    bool isLost = false;
    if (group.thread == 0) {
      const Word round = ++rounds[barrier_id];
      for (int r = 0; r < ranks; ++r) {
        detail::storeRelease(barrierWords(r, barrier_id) + rank(), round);
      }
      const Word* const arrived = barrierWords(rank(), barrier_id);
      for (int r = 0; r < ranks && !isLost; ++r) {
        isLost = !await(What::Barrier, r, toWord(barrier_id),
                        [&] { return detail::loadAcquire(arrived + r) >= round; });
      }
    }
    return ended(scope, isLost);
  }

 private:
  /// At most so often does a thread that waits look at the clock and the memory of the host, for it
  /// does not see what arrives meanwhile.
  static constexpr Word kLookEveryNanos = 1000000;
  static constexpr unsigned kPollsPerLook = 64;

  static TORCHCOMMS_DEVICE Word toWord(int number) {  // of one below 0: a large one
    return static_cast<Word>(static_cast<long long>(number));
  }
  static TORCHCOMMS_DEVICE bool isInside(Word offset, Word bytes, Word size) {
    return offset <= size && bytes <= size - offset;
  }

  TORCHCOMMS_DEVICE const DeviceWindowPeer& own() const { return peers[rank()]; }
  TORCHCOMMS_DEVICE bool isRank(int peer) const { return peer >= 0 && peer < ranks; }
  /// What this rank changes of a signal of `peer`.
  TORCHCOMMS_DEVICE Word* signalWord(int peer, int signal_id) const {
    return peers[peer].words + toWord(signal_id) * toWord(ranks) + rank();
  }
  TORCHCOMMS_DEVICE Word* barrierWords(int peer, int barrier_id) const {
    return peers[peer].words + (signals + toWord(barrier_id)) * toWord(ranks);
  }
  TORCHCOMMS_DEVICE Word sumOf(int signal_id) const {
    const Word* const words = own().words + toWord(signal_id) * toWord(ranks);
    Word sum = 0;
    for (int r = 0; r < ranks; ++r) sum += detail::loadAcquire(words + r);
    return sum;
  }

  TORCHCOMMS_DEVICE void fail(Status status, What what, int peer, Word value, Word limit,
                              Word bytes) {
    if (!detail::isFirst(failed, status)) return;
    report->what = what;
    report->peer = peer;
    report->value = value;
    report->limit = limit;
    report->bytes = bytes;
    detail::storeRelease(&report->status, status);
  }

  TORCHCOMMS_DEVICE int refuse(const detail::Group& group, What what, Word value, Word limit,
                               int peer = -1, Word bytes = 0) {
    if (group.thread == 0) fail(kOutOfRange, what, peer, value, limit, bytes);
    return kOutOfRange;
  }

  /// The Status of a call whose first thread has waited. That of the first failure stays.
  TORCHCOMMS_DEVICE int ended(CoopScope scope, bool isLost) const {
    return detail::syncOr(scope, isLost) ? static_cast<int>(detail::loadRelaxed(failed)) : kOk;
  }

  template <class Done>
  TORCHCOMMS_DEVICE int wait(CoopScope scope, What what, int peer, int number, const Done& done) {
    const bool isFirst = detail::groupOf(scope).thread == 0;
    return ended(scope, isFirst && !await(what, peer, toWord(number), done));
  }

  /// Of one thread. False: the window has failed.
  template <class Done>
  TORCHCOMMS_DEVICE bool await(What what, int peer, Word number, const Done& done) {
    Word began = 0, looked = 0;
    for (unsigned polls = 1; !done(); ++polls) {
      detail::pause();
      if (polls % kPollsPerLook != 0) continue;
      if (detail::loadRelaxed(failed) != kOk) return false;
      const Word now = detail::nanoseconds();
      if (began == 0) began = looked = now;
      if (now - looked < kLookEveryNanos) continue;
      looked = now;
      if (detail::loadRelaxed(&report->abort) != 0) {
        detail::isFirst(failed, kAborted);
        return false;
      }
      if (timeoutNanos != 0 && now - began > timeoutNanos) {
        fail(kTimedOut, what, peer, number, 0, 0);
        return false;
      }
    }
    return true;
  }
};

static_assert(sizeof(TorchCommDeviceWindow) == sizeof(DeviceWindowState));

}  // namespace torchcomms::device
