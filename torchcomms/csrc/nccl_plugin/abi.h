#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

/// What NCCL and its plug-ins agree about, in every version that a NCCL from 2.19 to 2.28 asks for:
/// facts about its binary interface. The names say the version, since versions do not change.
namespace torchcomms::nccl_plugin {

enum class Result : int { Success = 0, InternalError = 3 };

/// NCCL's own log; level 2 is a warning.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// ---- profiler ----

enum EventType : uint64_t {
  kGroup = 1 << 0,
  kColl = 1 << 1,
  kP2p = 1 << 2,
  kProxyOp = 1 << 3,
  kKernelChannel = 1 << 6,
};

/// How an event's description begins. The type has one byte up to version 4, and eight since; what
/// we ask for fits into one.
struct EventHead {
  uint8_t type;
  void* parent;
  int rank;
};

struct CollV1 {
  const char* name;
  uint64_t commHash, seqNumber;
  uint8_t func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t op;
  size_t trafficBytes;
  uint8_t nMaxChannels, nWarps, algo, proto;
  int isCollnet, isNvls;
};
struct P2pV1 {
  const char* name;
  uint64_t commHash;
  uint8_t func;
  void* buff;
  uint8_t datatype;
  size_t count;
  int peer;
};

struct CollV2 {
  const char* name;
  uint64_t commHash, seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  size_t trafficBytes;
  uint8_t nMaxChannels, nWarps;
  const char *algo, *proto;
};
struct CollV3 {
  const char* name;
  uint64_t commHash, seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nMaxChannels, nWarps;
  const char *algo, *proto;
};
struct P2pV2 {  // and of version 3
  const char* name;
  uint64_t commHash;
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
};

struct CollV4 {  // and of version 5, with more behind it
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels, nWarps;
  const char *algo, *proto;
};
struct P2pV4 {  // and of version 5, with more behind it
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
};

template <typename Coll, typename P2p>
struct Event {
  EventHead head;
  union {
    Coll coll;
    P2p p2p;
  };
};
using EventV1 = Event<CollV1, P2pV1>;
using EventV2 = Event<CollV2, P2pV2>;
using EventV3 = Event<CollV3, P2pV2>;
using EventV4 = Event<CollV4, P2pV4>;

static_assert(sizeof(EventHead) == 24);
static_assert(sizeof(EventV1) == 120 && offsetof(CollV1, isNvls) == 88);
static_assert(sizeof(EventV2) == 128 && offsetof(CollV2, proto) == 96);
static_assert(sizeof(EventV3) == 120 && offsetof(CollV3, proto) == 88);
static_assert(sizeof(EventV4) == 104 && offsetof(CollV4, proto) == 72);
static_assert(offsetof(P2pV1, peer) == 48 && offsetof(P2pV2, peer) == 48 &&
              offsetof(P2pV4, nChannels) == 36);

using StateArgs = void;  // we look at none

/// Versions 1 to 3, and 4 and 5, differ in how a communicator is introduced.
template <typename E, typename... Introduction>
struct Profiler {
  const char* name;
  Result (*init)(void** context, Introduction...);
  Result (*startEvent)(void* context, void** handle, E* event);
  Result (*stopEvent)(void* handle);
  Result (*recordEventState)(void* handle, int state, StateArgs* args);
  Result (*finalize)(void* context);
};
using ProfilerV1 = Profiler<EventV1, int*>;
using ProfilerV2 = Profiler<EventV2, int*>;
using ProfilerV3 = Profiler<EventV3, int*>;
using ProfilerV4 = Profiler<EventV4, int*, const char*, uint64_t, int, int, int, Logger>;
using ProfilerV5 = Profiler<EventV4, uint64_t, int*, const char*, int, int, int, Logger>;

// ---- tuner ----

struct TunerV2 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*getCollInfo)(void* context, int collective, size_t bytes, int collNet, int nvls,
                        int pipeOps, int* algorithm, int* protocol, int* channels);
  Result (*destroy)(void* context);
};
/// `costs` is a table of floats, a row of protocols for each algorithm; kCannot where NCCL has no
/// such way, and the lowest one is taken.
struct TunerV3 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*getCollInfo)(void* context, int collective, size_t bytes, int pipeOps, float** costs,
                        int algorithms, int protocols, int* channels);
  Result (*destroy)(void* context);
};
struct TunerV4 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*getCollInfo)(void* context, int collective, size_t bytes, int pipeOps, float** costs,
                        int algorithms, int protocols, int registered, int* channels);
  Result (*destroy)(void* context);
};
struct TunerV5 {
  const char* name;
  Result (*init)(void** context, uint64_t comm, size_t ranks, size_t nodes, Logger log,
                 void* domains, void* constants);
  Result (*getCollInfo)(void* context, int collective, size_t bytes, int pipeOps, float** costs,
                        int algorithms, int protocols, int registered, int* channels);
  Result (*finalize)(void* context);
};
inline constexpr float kCannot = -1.0F;

}  // namespace torchcomms::nccl_plugin
