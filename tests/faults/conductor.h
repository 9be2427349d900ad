// Starts the ranks, breaks them, and judges how they fared.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ctran/os/unique_fd.h"
#include "tests/faults/memory_cgroup.h"
#include "tests/faults/rank.h"

namespace ctran::testing {

struct Tally {
  uint64_t faults = 0, failures = 0, calls = 0;
  struct Kind {
    uint64_t faults = 0;
    int64_t nanos = 0, longest = 0;
  };
  std::map<std::string, Kind> perFault;
  uint64_t indirect = 0;  ///< survivors that named a rank which had only given up, or waited
  int64_t latestNotice = 0;
  std::string latestScenario;
};

class Conductor {
 public:
  /// `hold`: after the first failure everything stays as it is, for a debugger.
  explicit Conductor(bool hold);
  ~Conductor();
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  /// Whether the kernel lets us fill a memory cgroup; if not, why.
  const MemoryCgroup& cgroup() const { return cgroup_; }

  /// True if all was as it should be.
  bool run(const Scenario& scenario);
  const Tally& tally() const { return tally_; }

 private:
  struct Rank {
    pid_t pid = -1;
    UniqueFd orders;
    int scenarios = 0;
    Belongings usual;  ///< the most of its first few scenarios
  };
  using Accounts = std::array<std::unique_ptr<Account>, kMaxRanks>;

  void start(int rank);
  void end(int rank);
  void endAll();
  void awaitBeginning(const Scenario& scenario);
  void inject(const Scenario& scenario);
  void lift(const Scenario& scenario);
  /// One account of each rank of the mask; those of whom none comes in time hang.
  bool collect(const Scenario& scenario, uint32_t mask, Accounts& accounts);
  void judge(const Scenario& scenario, const Accounts& accounts);
  void judgeRank(const Scenario& scenario, int rank, const Account& account);
  bool namesWhoGaveUp(const Scenario& scenario, int rank, const Account& account);
  void judgeLeaks(const Scenario& scenario, int rank, const Account& account);
  void complain(const Scenario& scenario, int rank, const std::string& what);

  const bool hold_;
  std::string folder_;
  Stage* stage_ = nullptr;
  Injection* injections_ = nullptr;
  std::array<Rank, kMaxRanks> ranks_;
  MemoryCgroup cgroup_;
  Tally tally_;
  bool wrong_ = false;
};

}  // namespace ctran::testing
