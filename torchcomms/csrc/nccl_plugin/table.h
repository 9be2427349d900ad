#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchcomms::nccl_plugin {

/// A call, as NCCL asks a tuner about it.
struct Question {
  int collective = 0;  ///< as in kFunctions
  uint64_t bytes = 0, nodes = 1, ranks = 1;
  int pipeOps = 1;
  int registered = 0;  ///< whether its memory is; -1: not told
};

/// What NCCL is to take. -1: what it takes by itself.
struct Choice {
  int algorithm = -1, protocol = -1, channels = -1;
};

/// Which way of NCCL is fastest for which call: a file that somebody wrote, or `torchcomms tune`.
///
///     # collective, least bytes, most bytes, algorithm, protocol, channels, hosts, ranks
///     all_reduce, 0, 65536, tree, ll, 2, 1, 8
///
/// -1 or nothing means any, or what NCCL takes by itself. The first line that fits a call counts.
class Table {
 public:
  static constexpr size_t kMostBytes = 1 << 20;

  Table() = default;
  /// Throws std::runtime_error that names file, line, and what is wrong.
  static Table read(const std::string& path);
  static Table parse(const std::string& text, const std::string& name);

  Choice find(const Question& question) const;
  size_t size() const { return rows_.size(); }

 private:
  struct Row {
    int collective;
    uint64_t least, most;
    Choice choice;
    int64_t nodes, ranks, pipeOps, registered;  ///< -1: any
  };
  static Row row(const std::string& line);

  std::vector<Row> rows_;
};

}  // namespace torchcomms::nccl_plugin
