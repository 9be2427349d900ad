// Litmus tests of the memory model between GPUs, and small kernels to time the driver with. Every
// loop here is bounded by the clock: a test that goes wrong reports it, and never hangs.

#include "ctran/gpu/device/probe.cuh"
#include "ctran/gpu/device/wait.cuh"

using namespace ctran::device;

namespace {

// --- Bounded spinning ---------------------------------------------------------------------------

class Deadline {
 public:
  Deadline(u64 ns) : end_(timerNs() + ns) {}
  bool passed() { return (++polls_ & 255) == 0 && timerNs() > end_; }

 private:
  u64 end_;
  u32 polls_ = 0;
};

struct Counts {
  u64 rounds;    // rounds completed
  u64 observed;  // loads that saw something new
  u64 torn;      // 16-byte loads whose words differ
  u64 lineTorn;  // 128-byte lines whose 16-byte parts differ
  u64 stale;     // data older than the flag that announced it
  u64 timedOut;
};

void count(u64* where, u64 n = 1) { atomicAdd(where, n); }

// --- Every way to store and to load -------------------------------------------------------------

enum Store : int {
  kStoreVolatileV4,
  kStoreRelaxedV4,
  kStoreRelaxedB128,
  kStoreWeakV4,
  kStoreTwoU64,  // control: not whole, must be seen torn
  kStoreRelaxedU64,
  kStoreVolatileV2,
};

enum Load : int {
  kLoadVolatileV4,
  kLoadRelaxedV4,
  kLoadRelaxedB128,
  kLoadTwoU64,  // control
  kLoadRelaxedU64,
  kLoadVolatileV2,
};

void store(int kind, Word16* p, u32 v) {
  const u64 vv = v | static_cast<u64>(v) << 32;
  switch (kind) {
    case kStoreVolatileV4:
      asm volatile("st.volatile.global.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(p), "r"(v) : "memory");
      break;
    case kStoreRelaxedV4:
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(p), "r"(v) : "memory");
      break;
    case kStoreRelaxedB128:
      storeWhole(p, {{v, v, v, v}});
      break;
    case kStoreWeakV4:
      asm volatile("st.global.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(p), "r"(v) : "memory");
      break;
    case kStoreTwoU64:
      asm volatile(
          "st.relaxed.sys.global.u64 [%0], %1; st.relaxed.sys.global.u64 [%0+8], %1;" ::"l"(p),
          "l"(vv)
          : "memory");
      break;
    case kStoreRelaxedU64:
      asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(vv) : "memory");
      break;
    case kStoreVolatileV2:
      asm volatile("st.volatile.global.v2.u32 [%0], {%1,%1};" ::"l"(p), "r"(v) : "memory");
      break;
  }
}

Word16 load(int kind, const Word16* p) {
  Word16 v = {};
  u64 a = 0, b = 0;
  switch (kind) {
    case kLoadVolatileV4:
      asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                   : "l"(p)
                   : "memory");
      return v;
    case kLoadRelaxedV4:
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                   : "l"(p)
                   : "memory");
      return v;
    case kLoadRelaxedB128:
      return loadWhole(p);
    case kLoadTwoU64:
      asm volatile("ld.relaxed.sys.global.u64 %0, [%2]; ld.relaxed.sys.global.u64 %1, [%2+8];"
                   : "=l"(a), "=l"(b)
                   : "l"(p)
                   : "memory");
      break;
    case kLoadRelaxedU64:
      asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(a) : "l"(p) : "memory");
      b = a;
      break;
    case kLoadVolatileV2: {
      u32 x, y;
      asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];"
                   : "=r"(x), "=r"(y)
                   : "l"(p)
                   : "memory");
      a = b = x | static_cast<u64>(y) << 32;
      break;
    }
  }
  return {{static_cast<u32>(a), static_cast<u32>(a >> 32), static_cast<u32>(b),
           static_cast<u32>(b >> 32)}};
}

}  // namespace

// --- Tearing ------------------------------------------------------------------------------------
// Writers store 1, 2, ... rounds into all words of their slot without waiting for anybody; readers
// on the owner's GPU check that the words they see in one load are equal. Slot i belongs to thread
// i of both, so eight threads share a 128-byte line.

extern "C" __global__ void tearWriter(Word16* slots, u32 rounds, int kind, u64 limitNs) {
  Word16* slot = slots + blockIdx.x * blockDim.x + threadIdx.x;
  Deadline deadline(limitNs);
  for (u32 round = 1; round <= rounds; ++round) {
    store(kind, slot, round);
    if (deadline.passed()) return;
  }
}

extern "C" __global__ void tearReader(const Word16* slots, u32 rounds, int kind, u64 limitNs,
                                      Counts* counts) {
  const Word16* slot = slots + blockIdx.x * blockDim.x + threadIdx.x;
  Deadline deadline(limitNs);
  u64 observed = 0, torn = 0, lineTorn = 0;
  u32 last = 0;
  bool late = false;
  for (bool done = false; !done && !late;) {
    const Word16 v = load(kind, slot);
    const u32 first = v.w[0];
    torn += first != v.w[1] || first != v.w[2] || first != v.w[3];
    const u32 ofLine = __shfl_sync(0xffffffffu, first, threadIdx.x & 24);
    lineTorn += first != ofLine;
    observed += first != last;
    last = first;
    // Leave as a warp: the shuffle above needs everybody.
    done = __all_sync(0xffffffffu, first == rounds && v.w[3] == rounds);
    late = __any_sync(0xffffffffu, deadline.passed());
  }
  count(&counts->rounds);
  count(&counts->observed, observed);
  count(&counts->torn, torn);
  count(&counts->lineTorn, lineTorn);
  if (late) count(&counts->timedOut);
}

// --- Message passing ----------------------------------------------------------------------------
// One block writes `kData` 16-byte words per thread and announces round r through a flag; the
// reader must then see r everywhere. The reader's acknowledgement starts the next round.

namespace {

constexpr u32 kData = 4;

enum Announce : int {
  kBarrierRelease,     // data by all, barrier, one st.release.sys
  kBarrierFence,       // data by all, barrier, fence.acq_rel.sys, st.relaxed.sys
  kBarrierRelaxed,     // no fence: not guaranteed
  kBarrierReleaseGpu,  // a fence of too small a scope: not guaranteed
  kThreadRelease,      // every thread its own flag, st.release.sys
  kThreadRelaxed,      // every thread its own flag, no fence: not guaranteed
  kThreadVolatile,     // every thread its own flag, volatile data and flag: not guaranteed
  kBarrierRedRelease,  // red.release.sys.add on a counter
};

enum Observe : int {
  kAcquire,         // ld.acquire.sys, barrier, plain loads
  kRelaxedFence,    // ld.relaxed.sys, fence, barrier, plain loads
  kRelaxedPlain,    // no fence, plain loads: not guaranteed
  kRelaxedRelaxed,  // no fence, relaxed loads: not guaranteed
};

bool awaitFlag(const u32* flag, u32 value, bool acquire, Deadline& deadline) {
  while ((acquire ? loadAcquire(flag) : loadRelaxed(flag)) != value) {
    if (deadline.passed()) return false;
  }
  return true;
}

bool perThread(int announce) { return announce >= kThreadRelease && announce <= kThreadVolatile; }

}  // namespace

extern "C" __global__ void mpWriter(Word16* data, u32* flags, const u32* acks, u32 rounds,
                                    int announce, u64 limitNs, Counts* counts) {
  __shared__ bool ok;
  Deadline deadline(limitNs);
  Word16* mine = data + blockIdx.x * blockDim.x * kData;
  u32* flag = flags + blockIdx.x * blockDim.x;
  for (u32 round = 1; round <= rounds; ++round) {
    for (u32 k = 0; k < kData; ++k) {
      Word16* p = mine + k * blockDim.x + threadIdx.x;
      store(announce == kThreadVolatile ? kStoreVolatileV4 : kStoreWeakV4, p, round);
    }
    if (perThread(announce)) {
      u32* own = flag + threadIdx.x;
      if (announce == kThreadRelease) storeRelease(own, round);
      if (announce == kThreadRelaxed) storeRelaxed(own, round);
      if (announce == kThreadVolatile) *static_cast<volatile u32*>(own) = round;
    } else {
      __syncthreads();
      if (threadIdx.x == 0) {
        if (announce == kBarrierRelease) storeRelease(flag, round);
        if (announce == kBarrierRedRelease) {
          asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
        }
        if (announce == kBarrierFence) fenceSystem();
        if (announce == kBarrierFence || announce == kBarrierRelaxed) storeRelaxed(flag, round);
        if (announce == kBarrierReleaseGpu) {
          asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(round) : "memory");
        }
      }
    }
    if (threadIdx.x == 0) ok = awaitFlag(acks + blockIdx.x, round, true, deadline);
    __syncthreads();
    const bool go = ok;
    __syncthreads();
    if (!go) {
      if (threadIdx.x == 0) count(&counts->timedOut);
      return;
    }
  }
}

extern "C" __global__ void mpReader(const Word16* data, const u32* flags, u32* acks, u32 rounds,
                                    int announce, int observe, u64 limitNs, Counts* counts) {
  __shared__ u32 bad;
  Deadline deadline(limitNs);
  const Word16* mine = data + blockIdx.x * blockDim.x * kData;
  const u32* flag = flags + blockIdx.x * blockDim.x;
  u64 stale = 0;
  for (u32 round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0) bad = 0;
    __syncthreads();
    if (perThread(announce)) {
      if (!awaitFlag(flag + threadIdx.x, round, observe == kAcquire, deadline)) atomicOr(&bad, 1u);
      if (observe == kRelaxedFence) fenceSystem();
    } else if (threadIdx.x == 0) {
      if (!awaitFlag(flag, round, observe == kAcquire, deadline)) bad = 1;
      if (observe == kRelaxedFence) fenceSystem();
    }
    if (!perThread(announce)) __syncthreads();
    for (u32 k = 0; k < kData; ++k) {
      const Word16* p = mine + k * blockDim.x + threadIdx.x;
      Word16 v;
      if (observe == kRelaxedRelaxed) {
        v = load(kLoadRelaxedV4, p);
      } else {
        asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                     : "l"(p)
                     : "memory");
      }
      for (u32 w = 0; w < 4; ++w) stale += v.w[w] != round;
    }
    __syncthreads();
    const bool failed = bad != 0;
    if (threadIdx.x == 0) {
      storeRelease(acks + blockIdx.x, round);
      count(failed ? &counts->timedOut : &counts->rounds);
    }
    if (failed) break;
    __syncthreads();
  }
  count(&counts->stale, stale);
}

/// Passes every round on: acquires `from`, releases `to`. One thread per block.
extern "C" __global__ void mpRelay(const u32* from, u32* to, u32 flagStride, u32 rounds,
                                   u64 limitNs, Counts* counts) {
  Deadline deadline(limitNs);
  for (u32 round = 1; round <= rounds; ++round) {
    if (!awaitFlag(from + blockIdx.x * flagStride, round, true, deadline)) {
      count(&counts->timedOut);
      return;
    }
    storeRelease(to + blockIdx.x * flagStride, round);
  }
}

// --- Latency, and counters near their wrap -------------------------------------------------------

namespace {

enum Ping : int { kPingRelaxed, kPingReleaseAcquire, kPingB128, kPingVolatile, kPingRed };

}  // namespace

/// One thread on each side; `theirs` is in the other's memory. Epochs run from `start`, skipping 0.
extern "C" __global__ void pingPong(Word16* mine, Word16* theirs, u32 start, u32 rounds, int kind,
                                    bool first, u64 limitNs, Counts* counts) {
  Deadline deadline(limitNs);
  u32 epoch = start;
  for (u32 round = 0; round < rounds; ++round) {
    epoch = nextEpoch(epoch);
    for (int half = 0; half < 2; ++half) {
      if ((half == 0) == first) {
        if (kind == kPingRelaxed) storeRelaxed(&theirs->w[0], epoch);
        if (kind == kPingReleaseAcquire) storeRelease(&theirs->w[0], epoch);
        if (kind == kPingB128) storeWhole(theirs, {{epoch, epoch, epoch, epoch}});
        if (kind == kPingVolatile) store(kStoreVolatileV4, theirs, epoch);
        if (kind == kPingRed) {
          asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(theirs) : "memory");
        }
        continue;
      }
      for (;;) {
        u32 seen;
        if (kind == kPingB128)
          seen = loadWhole(mine).w[3];
        else if (kind == kPingVolatile)
          seen = load(kLoadVolatileV4, mine).w[3];
        else if (kind == kPingRelaxed)
          seen = loadRelaxed(&mine->w[0]);
        else
          seen = loadAcquire(&mine->w[0]);
        if (seen == (kind == kPingRed ? start + round + 1 : epoch)) break;
        if (deadline.passed()) {
          count(&counts->timedOut);
          return;
        }
      }
    }
    count(&counts->rounds);
  }
}

/// Cycles of a remote store alone and of one followed by fence.acq_rel.sys, with `outstanding`
/// other stores on the way.
extern "C" __global__ void fenceCost(u32* remote, u32 outstanding, u32 rounds, u64* cycles) {
  u64 plain = 0, fenced = 0;
  for (u32 round = 0; round < rounds; ++round) {
    for (u32 i = 0; i < outstanding; ++i) storeRelaxed(remote + 32 * i + threadIdx.x, round);
    const u64 a = clock64();
    storeRelaxed(remote + threadIdx.x, round);
    const u64 b = clock64();
    fenceSystem();
    const u64 c = clock64();
    plain += b - a;
    fenced += c - b;
  }
  if (threadIdx.x == 0) {
    cycles[0] = plain / rounds;
    cycles[1] = fenced / rounds;
  }
}

// --- Abort
// ----------------------------------------------------------------------------------------

/// Waits for a flag that nobody sets, the way every kernel of ours waits.
extern "C" __global__ void spinUntilAborted(Team team, const u32* flag) {
  __shared__ Guard guard;
  if (threadIdx.x == 0) guard = {};
  const Block block = thisBlock(&guard);
  block.sync();
  u32 polls = 0;
  while (loadRelaxed(flag) == 0) {
    if (++polls % kPollsPerCheck == 0 &&
        !keepWaiting(team, block, 7, 1u << (team.rank + 1) % team.size)) {
      return;
    }
  }
}

// --- Odds and ends
// ----------------------------------------------------------------------------------

extern "C" __global__ void empty() {}

struct Large {
  char bytes[512];
};

extern "C" __global__ void emptyLarge(Large) {}

extern "C" __global__ void delay(u64 ns) {
  const u64 end = timerNs() + (ns < 2000000000ull ? ns : 2000000000ull);
  while (timerNs() < end) {
  }
}

/// How coarse the clock is, and what reading it, the mapped host word and local memory cost in
/// cycles.
extern "C" __global__ void readCosts(const u32* hostWord, const u32* localWord, u64* out) {
  u64 t = timerNs(), smallest = ~0ull;
  for (int i = 0; i < 2000; ++i) {
    const u64 now = timerNs();
    if (now != t && now - t < smallest) smallest = now - t;
    t = now;
  }
  out[0] = smallest;
  u32 sum = 0;
  u64 a = clock64();
  for (int i = 0; i < 64; ++i) sum += static_cast<u32>(timerNs());
  u64 b = clock64();
  out[1] = (b - a) / 64;
  a = clock64();
  for (int i = 0; i < 64; ++i) sum += loadRelaxed(hostWord + (sum & 1));
  b = clock64();
  out[2] = (b - a) / 64;
  a = clock64();
  for (int i = 0; i < 64; ++i) sum += loadRelaxed(localWord + (sum & 1));
  b = clock64();
  out[3] = (b - a) / 64;
  out[4] = sum;
}
