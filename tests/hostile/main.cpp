// ctran_hostile: see README.md.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "ctran/base/clock.h"
#include "ctran/os/unique_fd.h"
#include "tests/hostile/scenario.h"

namespace ctran::testing {
namespace {

/// What a victim may have allocated for a scenario beyond what it had: its own memory, and what
/// docs/security.md says that a peer can make it keep.
constexpr int64_t kMostBytes = 48 << 20;
/// A guard, far above what anything takes on a busy machine.
constexpr int kHangsMillis = 120'000;
constexpr int kMostFailures = 5;

struct Arguments {
  uint64_t seed = 1;
  double seconds = 30;
  int64_t only = -1;
  bool verbose = false;
};

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr, "usage: %s [--seconds N] [--seed N] [--only NUMBER] [--verbose]\n", program);
  std::exit(2);
}

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--verbose") {
      arguments.verbose = true;
      continue;
    }
    if (i + 1 >= count) usage(words[0]);
    const char* value = words[++i];
    if (word == "--seed") {
      arguments.seed = std::strtoull(value, nullptr, 10);
    } else if (word == "--seconds") {
      arguments.seconds = std::strtod(value, nullptr);
    } else if (word == "--only") {
      arguments.only = std::strtoll(value, nullptr, 10);
    } else {
      usage(words[0]);
    }
  }
  return arguments;
}

/// Starts the ranks, tells them the scenarios, and judges how the victims fared.
class Conductor {
 public:
  Conductor()
      : folder_((std::filesystem::temp_directory_path() / "ctran-hostile-XXXXXX").string()) {
    void* const memory =
        ::mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || ::mkdtemp(folder_.data()) == nullptr) {
      throw std::runtime_error("no memory, or no folder, to share");
    }
    stage_ = static_cast<Stage*>(memory);
    std::strncpy(stage_->store, folder_.c_str(), sizeof stage_->store - 1);
    start();
  }
  ~Conductor() {
    end();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  bool run(const Scenario& scenario, bool verbose) {
    isWrong_ = false;
    for (const Member& member : members_) {
      ::send(member.orders.get(), &scenario, sizeof scenario, MSG_NOSIGNAL);
    }
    const int64_t giveUp = nowNanos() + int64_t{kHangsMillis} * 1'000'000;
    bool areAllWell = true;
    std::array<Account, kRanks> accounts;
    for (int r = 0; r < kRanks; ++r) {
      Account& account = accounts[static_cast<size_t>(r)];
      if (!hear(r, giveUp, account)) {
        complain(scenario, r, "crashed, or hangs");
        areAllWell = false;
      } else if (r == scenario.hostile) {
        told_ += account.lies > 0;
      }
    }
    for (int r = 0; r < kRanks && areAllWell; ++r) {
      if (r != scenario.hostile) judge(scenario, r, accounts, verbose);
    }
    if (!areAllWell) {
      end();
      start();
    }
    return !isWrong_;
  }

  void tell(uint64_t scenarios, int failures) const {
    std::printf(
        "%llu scenarios, %llu with lies; victims: %llu errors that name the rank, %llu that name "
        "the "
        "other victim, which waited or had given up, %llu unharmed; %.1f MB at most; %d failures\n",
        static_cast<unsigned long long>(scenarios), static_cast<unsigned long long>(told_),
        static_cast<unsigned long long>(named_), static_cast<unsigned long long>(indirect_),
        static_cast<unsigned long long>(unharmed_), static_cast<double>(most_) / (1 << 20),
        failures);
  }

 private:
  struct Member {
    pid_t pid = -1;
    UniqueFd orders;
  };

  void start() {
    for (int r = 0; r < kRanks; ++r) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        throw std::runtime_error("socketpair");
      }
      std::fflush(nullptr);
      const pid_t child = ::fork();
      if (child == 0) {
        for (Member& other : members_) other.orders = UniqueFd();
        ::close(ends[0]);
        serveAsMember(ends[1], r, *stage_);
      }
      ::close(ends[1]);
      members_[static_cast<size_t>(r)] = {child, UniqueFd(ends[0])};
    }
  }

  void end() {
    for (Member& member : members_) {
      if (member.pid <= 0) continue;
      ::kill(member.pid, SIGKILL);
      ::waitpid(member.pid, nullptr, 0);
      member = {};
    }
  }

  bool hear(int rank, int64_t giveUp, Account& account) const {
    const int fd = members_[static_cast<size_t>(rank)].orders.get();
    pollfd entry{fd, POLLIN, 0};
    const int64_t left = std::max<int64_t>((giveUp - nowNanos()) / 1'000'000, 1);
    return ::poll(&entry, 1, static_cast<int>(left)) == 1 &&
           ::recv(fd, &account, sizeof account, MSG_WAITALL) == sizeof account;
  }

  /// Whether the error names the other victim, which has given up for the hostile rank, or whose
  /// own deadline has passed.
  static bool namesWhoGaveUp(const Scenario& scenario, int rank,
                             const std::array<Account, kRanks>& accounts) {
    const int other = kRanks - scenario.hostile - rank;
    const Account& theirs = accounts[static_cast<size_t>(other)];
    return (accounts[static_cast<size_t>(rank)].ranks >> other & 1) != 0 && theirs.failed &&
           (theirs.named || theirs.timedOut);
  }

  void judge(const Scenario& scenario, int rank, const std::array<Account, kRanks>& accounts,
             bool verbose) {
    const Account& account = accounts[static_cast<size_t>(rank)];
    const bool isIndirect =
        !account.named && (account.timedOut || namesWhoGaveUp(scenario, rank, accounts));
    most_ = std::max(most_, account.allocated);
    unharmed_ += !account.failed;
    named_ += account.failed && account.named;
    indirect_ += account.failed && isIndirect;
    if (verbose) {
      std::fprintf(stderr, "  rank %d: %s\n", rank, account.failed ? account.error : "unharmed");
    }
    if (account.wrong[0] != 0) complain(scenario, rank, account.wrong);
    // Across hosts a timeout names the rank that was waited for, which may wait itself.
    if (account.failed && !account.named && !isIndirect) {
      complain(scenario, rank, std::string("names another: ") + account.error);
    }
    if (account.allocated > kMostBytes) {
      complain(scenario, rank, "allocated " + std::to_string(account.allocated) + " bytes");
    }
  }

  void complain(const Scenario& scenario, int rank, const std::string& what) {
    std::fprintf(stderr, "FAILED: %s\n  rank %d: %s\n", scenario.describe().c_str(), rank,
                 what.c_str());
    isWrong_ = true;
  }

  std::string folder_;
  Stage* stage_ = nullptr;
  std::array<Member, kRanks> members_;
  bool isWrong_ = false;
  uint64_t told_ = 0, named_ = 0, indirect_ = 0, unharmed_ = 0;
  int64_t most_ = 0;
};

int runAll(const Arguments& arguments) {
  Conductor conductor;
  const int64_t start = nowNanos();
  uint64_t number = arguments.only >= 0 ? static_cast<uint64_t>(arguments.only) : 0;
  uint64_t scenarios = 0;
  int failures = 0;
  do {
    const Scenario scenario = drawScenario(arguments.seed, number++);
    if (arguments.verbose) std::fprintf(stderr, "%s\n", scenario.describe().c_str());
    failures += !conductor.run(scenario, arguments.verbose);
    ++scenarios;
  } while (arguments.only < 0 && failures < kMostFailures &&
           static_cast<double>(nowNanos() - start) * 1e-9 < arguments.seconds);
  conductor.tell(scenarios, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ctran::testing

int main(int count, char** words) {
  return ctran::testing::runAll(ctran::testing::parse(count, words));
}
