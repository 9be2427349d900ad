#include "ctran/base/collective_kind.h"

#include <cstddef>
#include <iterator>

namespace ctran {
namespace {

constexpr std::string_view kKindNames[] = {"barrier",
                                           "broadcast",
                                           "all_reduce",
                                           "reduce",
                                           "all_gather",
                                           "all_gather_v",
                                           "reduce_scatter",
                                           "reduce_scatter_v",
                                           "scatter",
                                           "gather",
                                           "all_to_all",
                                           "all_to_all_v",
                                           "send",
                                           "recv",
                                           "wait_signal",
                                           "all_to_all_v_dynamic",
                                           "all_to_all_v_combine",
                                           "put",
                                           "get",
                                           "flush",
                                           "signal"};

}  // namespace

std::string_view nameOf(CollectiveKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kKindNames) ? kKindNames[index] : "unknown operation";
}

std::optional<CollectiveKind> collectiveKindNamed(std::string_view name) {
  for (size_t i = 0; i < std::size(kKindNames); ++i) {
    if (kKindNames[i] == name) return static_cast<CollectiveKind>(i);
  }
  return std::nullopt;
}

}  // namespace ctran
