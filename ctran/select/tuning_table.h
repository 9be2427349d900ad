#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/base/json.h"

namespace ctran {

/// What was measured on a machine: how long the algorithms of each collective take at some sizes,
/// for one number of ranks that are spread over hosts in one way.
struct TuningTable {
  struct Entry {
    CollectiveKind kind;
    size_t bytes;                                        ///< see contributionBytes
    std::vector<std::pair<std::string, double>> micros;  ///< algorithm -> time, the fastest first
  };
  std::string machine;
  int ranks = 0;
  std::string shape;           ///< HostMap::shape of several hosts; empty on one
  std::vector<Entry> entries;  ///< by kind and bytes

  /// Returns the entry for that size: the nearest by ratio, within a factor of four; null if there
  /// is none.
  const Entry* find(CollectiveKind kind, size_t bytes) const;
  uint64_t hash() const;  ///< 0 if there are no entries

  Json toJson() const;
  /// Throws Error(InvalidArgument).
  static TuningTable fromJson(const Json& json);

  /// Returns the path, in CTRAN_TUNING_DIR, of the table of a machine (by default this host) for
  /// `ranks` ranks of that shape.
  static std::string pathFor(int ranks, const std::string& machine = {},
                             const std::string& shape = {});
  /// Reads that file. Returns an empty table if there is none, or it is another machine's; logs it
  /// if it cannot be read.
  static TuningTable load(int ranks, const std::string& machine = {},
                          const std::string& shape = {});
  /// Replaces the file of this table at once. Throws Error(System).
  void save() const;
};

}  // namespace ctran
