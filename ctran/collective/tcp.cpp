#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

/// Up to so many bytes, over all that a rank sends, one step costs less than two.
constexpr size_t kOneStepBytes = 64 << 10;
/// With more ranks a connection of each to each costs more than steps around the ring do.
constexpr int kDirectRanks = 32;

/// Whether sums of partial sums are as good as sums: not if each is rounded to few digits.
bool toleratesPartialSums(const Collective& c) {
  return sizeOf(c.type) > 2 || c.op.kind == ReduceKind::Min || c.op.kind == ReduceKind::Max;
}

struct Named {
  CollectiveKind kind;
  std::string_view name;
  TcpAlgorithm algorithm;
};

/// What a user can choose from, where there is a choice.
constexpr Named kNamed[] = {
    {CollectiveKind::AllReduce, "direct", allReduceDirect},
    {CollectiveKind::AllReduce, "two_phase", allReduceTwoPhase},
    {CollectiveKind::AllReduce, "ring", allReduceRing},
    {CollectiveKind::Reduce, "direct", reduceDirect},
    {CollectiveKind::Reduce, "two_phase", reduceTwoPhase},
    {CollectiveKind::AllGather, "direct", allGatherDirect},
    {CollectiveKind::AllGather, "ring", allGatherRing},
    {CollectiveKind::AllGatherV, "direct", allGatherDirect},
    {CollectiveKind::AllGatherV, "ring", allGatherRing},
};

}  // namespace

void checkTcpAlgorithm(std::string_view name) {
  std::string names;
  for (const Named& named : kNamed) {
    if (named.name == name) return;
    const std::string word = " " + std::string(named.name);
    if (names.find(word) == std::string::npos) names += word;
  }
  throw Error(ErrorKind::InvalidArgument,
              "the hint ctran::algorithm names '" + std::string(name) +
                  "', which no collective between hosts has; there are:" + names);
}

TcpAlgorithm chooseTcpAlgorithm(const Collective& c, int size, std::string_view preferred) {
  using Kind = CollectiveKind;
  for (const Named& named : kNamed) {
    if (named.kind == c.kind && named.name == preferred) return named.algorithm;
  }
  const bool oneStep = c.blockBytes() * (size - 1) <= kOneStepBytes;
  const bool direct = size <= kDirectRanks;
  switch (c.kind) {
    case Kind::Barrier:
      return barrierDissemination;
    case Kind::Broadcast:
      return broadcastBinomial;
    case Kind::AllReduce:
      if (oneStep) return allReduceDirect;
      return direct || !toleratesPartialSums(c) ? allReduceTwoPhase : allReduceRing;
    case Kind::Reduce:
      return oneStep ? reduceDirect : reduceTwoPhase;
    case Kind::AllGather:
    case Kind::AllGatherV:
      return direct ? allGatherDirect : allGatherRing;
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      return reduceScatterDirect;
    case Kind::Scatter:
      return scatterDirect;
    case Kind::Gather:
      return gatherDirect;
    case Kind::AllToAll:
      return allToAllDirect;
    case Kind::AllToAllV:
      return allToAllVDirect;
    case Kind::Send:
    case Kind::Recv:
    case Kind::WaitSignal:
      break;
  }
  throw Error(ErrorKind::InvalidArgument, std::string(nameOf(c.kind)) + " is not a collective");
}

}  // namespace ctran
