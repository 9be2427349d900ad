#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/base/json.h"

namespace ctran {

/// What was measured on a machine: for a number of ranks, and how they are
/// spread over hosts, how long the algorithms of a collective
/// take at some sizes.
struct TuningTable {
  struct Entry {
    CollectiveKind kind;
    size_t bytes;                                        ///< see contributionBytes
    std::vector<std::pair<std::string, double>> micros;  ///< algorithm -> time, the fastest first
  };
  std::string machine;
  int ranks = 0;
  std::string shape;           ///< of several hosts: HostMap::shape; empty of one
  std::vector<Entry> entries;  ///< by kind and bytes

  /// The entry that stands for that size: the nearest by ratio, within a factor of four; or none.
  const Entry* find(CollectiveKind kind, size_t bytes) const;
  uint64_t hash() const;  ///< 0 if there are no entries

  Json toJson() const;
  /// Throws Error(InvalidArgument).
  static TuningTable fromJson(const Json& json);

  /// Where the table of a machine, by default this host, for so many ranks of that shape is kept:
  /// in CTRAN_TUNING_DIR.
  static std::string pathFor(int ranks, const std::string& machine = {},
                             const std::string& shape = {});
  /// That file. Empty if there is none, or it is another machine's; says so if it cannot be read.
  static TuningTable load(int ranks, const std::string& machine = {},
                          const std::string& shape = {});
  /// Replaces its file at once. Throws Error(System).
  void save() const;
};

}  // namespace ctran
