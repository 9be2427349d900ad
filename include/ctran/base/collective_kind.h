#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ctran/base/export.h"

namespace ctran {

enum class CollectiveKind : uint8_t {
  Barrier,
  Broadcast,
  AllReduce,
  Reduce,
  AllGather,
  AllGatherV,
  ReduceScatter,
  ReduceScatterV,
  Scatter,
  Gather,
  AllToAll,
  AllToAllV,
  Send,
  Recv,
  WaitSignal,
  AllToAllVDynamic,
  AllToAllVCombine,
  // Of windows, as WaitSignal is; no communicator runs them.
  Put,
  Get,
  Flush,
  Signal,
};

/// Returns the name of a kind: "all_reduce".
CTRAN_API std::string_view nameOf(CollectiveKind kind);

/// Returns the kind of that name, if there is one.
CTRAN_API std::optional<CollectiveKind> collectiveKindNamed(std::string_view name);

}  // namespace ctran
