#include "tests/faults/conductor.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ctran/base/clock.h"

namespace ctran::testing {
namespace {

constexpr int64_t kMillis = 1'000'000;
// Guards, far above what anything takes on a busy machine; nothing is awaited that long on purpose.
constexpr int64_t kHangs = 90'000 * kMillis;
constexpr int64_t kNoticed = 20'000 * kMillis;  // a loss, by every survivor
constexpr int kWarmUp = 8;                      // scenarios after which nothing may grow

template <class T>
T* shared(size_t count) {
  void* const memory =
      ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  return static_cast<T*>(memory);
}

void pauseFor(int64_t nanos) {
  const timespec time{nanos / 1'000'000'000, nanos % 1'000'000'000};
  ::nanosleep(&time, nullptr);
}

std::string list(const Account& account) {
  std::string text = "{";
  for (int i = 0; i < account.rankCount; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(account.ranks[static_cast<size_t>(i)]);
  }
  return text + "}";
}

bool names(const Account& account, int rank) {
  return std::find(account.ranks.begin(), account.ranks.begin() + account.rankCount, rank) !=
         account.ranks.begin() + account.rankCount;
}

bool namesOnly(const Account& account, int rank) {
  return account.rankCount == 1 && account.ranks[0] == rank;
}

}  // namespace

Conductor::Conductor(bool hold)
    : hold_(hold),
      folder_((std::filesystem::temp_directory_path() / "ctran-soak-XXXXXX").string()),
      stage_(shared<Stage>(1)),
      injections_(shared<Injection>(kMaxRanks)) {
  if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("mkdtemp");
  for (int r = 0; r < kMaxRanks; ++r) start(r);
}

Conductor::~Conductor() {
  endAll();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  ::munmap(stage_, sizeof *stage_);
  ::munmap(injections_, kMaxRanks * sizeof *injections_);
}

void Conductor::start(int rank) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error("socketpair");
  }
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const Rank& other : ranks_) {
      if (other.orders) ::close(other.orders.get());
    }
    ::close(ends[0]);
    serveAsRank(ends[1], *stage_, injections_[rank]);
  }
  ::close(ends[1]);
  ranks_[static_cast<size_t>(rank)] = {child, UniqueFd(ends[0]), 0, {}};
}

void Conductor::end(int rank) {
  Rank& it = ranks_[static_cast<size_t>(rank)];
  if (it.pid <= 0) return;
  ::kill(it.pid, SIGKILL);
  ::waitpid(it.pid, nullptr, 0);
  it.pid = -1;
  it.orders = UniqueFd();
}

void Conductor::endAll() {
  for (int r = 0; r < kMaxRanks; ++r) end(r);
}

void Conductor::complain(const Scenario& scenario, int rank, const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n  rank %d: %s\n", scenario.describe().c_str(), rank,
               what.c_str());
  wrong_ = true;
  if (!hold_) return;
  std::fprintf(stderr, "held; the ranks are the processes");
  for (const Rank& it : ranks_) std::fprintf(stderr, " %d", static_cast<int>(it.pid));
  std::fprintf(stderr, "\n");
  while (true) ::pause();
}

/// Until the fault may come: all ranks have a communicator, or the victim begins to make one.
void Conductor::awaitBeginning(const Scenario& scenario) {
  const int64_t giveUp = nowNanos() + kHangs;
  const uint32_t wanted = scenario.whileCreating ? 1 : 2;
  const auto begun = [&](int r) { return stage_->calls[static_cast<size_t>(r)] >= wanted; };
  while (nowNanos() < giveUp) {
    int missing = 0;
    for (int r = 0; r < scenario.size; ++r) {
      if (scenario.whileCreating && r != scenario.victim) continue;
      missing += !begun(r);
    }
    if (missing == 0) break;
    pauseFor(20'000);
  }
  pauseFor(int64_t{scenario.delayMicros} * 1000);
}

void Conductor::inject(const Scenario& scenario) {
  const auto victim = static_cast<size_t>(scenario.victim);
  const pid_t pid = ranks_[victim].pid;
  stage_->brokenAt = nowNanos();
  switch (scenario.fault) {
    case Fault::Kill:
      ::kill(pid, SIGKILL);
      break;
    case Fault::Pause:
      ::kill(pid, SIGSTOP);
      pauseFor(int64_t{scenario.delayMicros} * 5000);
      ::kill(pid, SIGCONT);
      break;
    case Fault::Stop:
      ::kill(pid, SIGSTOP);
      break;
    case Fault::Reset:
      ::kill(pid, SIGUSR1);
      break;
    case Fault::Descriptors:
      ::kill(pid, SIGUSR2);
      break;
    case Fault::Clock:
      for (int i = 0; i < 6; ++i) {
        injections_[victim].clockOffsetSeconds = (i % 2 == 0 ? -1 : 1) * 7200 * (i + 1);
        pauseFor(int64_t{scenario.delayMicros} * 200);
      }
      break;
    case Fault::Memory:
      cgroup_.take(pid);
      break;
  }
}

/// What ends a fault that lasts.
void Conductor::lift(const Scenario& scenario) {
  const auto victim = static_cast<size_t>(scenario.victim);
  injections_[victim].clockOffsetSeconds = 0;
  if (scenario.fault == Fault::Stop) ::kill(ranks_[victim].pid, SIGCONT);
}

bool Conductor::collect(const Scenario& scenario, uint32_t mask, Accounts& accounts) {
  int64_t giveUp = nowNanos() + kHangs;
  int target = scenario.victim;
  while (mask != 0) {
    std::array<pollfd, kMaxRanks> waiting{};
    for (size_t r = 0; r < kMaxRanks; ++r) {
      waiting[r] = {(mask >> r & 1) != 0 ? ranks_[r].orders.get() : -1, POLLIN, 0};
    }
    // A connection may have been reset before it carried anything, or there was none yet.
    const bool again = scenario.fault == Fault::Reset && stage_->recovered == 0;
    const int ready = ::poll(waiting.data(), kMaxRanks, again ? 20 : 1000);
    if (ready == 0 && again) {
      ::kill(ranks_[static_cast<size_t>(target)].pid, SIGUSR1);
      target = (target + 1) % scenario.size;
    }
    for (size_t r = 0; r < kMaxRanks; ++r) {
      if ((waiting[r].revents & (POLLIN | POLLHUP)) == 0) continue;
      auto account = std::make_unique<Account>();
      const ssize_t n = ::recv(ranks_[r].orders.get(), account.get(), sizeof *account, MSG_WAITALL);
      mask &= ~(1u << r);
      if (n == sizeof *account && account->number == scenario.number) {
        accounts[r] = std::move(account);
        continue;
      }
      int status = 0;
      ::waitpid(ranks_[r].pid, &status, 0);
      ranks_[r].pid = -1;
      complain(scenario, static_cast<int>(r),
               WIFSIGNALED(status) ? "died of signal " + std::to_string(WTERMSIG(status))
                                   : "exited with status " + std::to_string(WEXITSTATUS(status)));
    }
    if (nowNanos() < giveUp) continue;
    for (int r = 0; r < kMaxRanks; ++r) {
      if ((mask >> r & 1) != 0) {
        complain(scenario, r,
                 "hangs, in call " + std::to_string(stage_->calls[static_cast<size_t>(r)]));
      }
    }
    return false;
  }
  return true;
}

bool Conductor::run(const Scenario& scenario) {
  wrong_ = false;
  const int64_t begun = nowNanos();
  for (auto& calls : stage_->calls) calls = 0;
  stage_->brokenAt = 0;
  stage_->recovered = 0;
  std::memset(stage_->handles, 0, sizeof stage_->handles);
  const std::string store = folder_ + "/" + std::to_string(scenario.number);
  std::filesystem::create_directory(store);
  std::snprintf(stage_->store, sizeof stage_->store, "%s", store.c_str());
  const uint32_t all = (1u << scenario.size) - 1;
  const uint32_t victim = 1u << scenario.victim;
  for (int r = 0; r < scenario.size; ++r) {
    const Orders orders{scenario, r};
    (void)!::send(ranks_[static_cast<size_t>(r)].orders.get(), &orders, sizeof orders,
                  MSG_NOSIGNAL);
  }
  awaitBeginning(scenario);
  inject(scenario);
  Accounts accounts;
  bool works = true;
  if (scenario.kills()) {
    int status = 0;
    auto& it = ranks_[static_cast<size_t>(scenario.victim)];
    ::waitpid(it.pid, &status, 0);
    it.pid = -1;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
      complain(scenario, scenario.victim, "was not killed: status " + std::to_string(status));
    }
    it.orders = UniqueFd();
    works = collect(scenario, all & ~victim, accounts);
  } else if (scenario.fault == Fault::Stop) {
    works = collect(scenario, all & ~victim, accounts);
    lift(scenario);
    works = works && collect(scenario, victim, accounts);
  } else {
    works = collect(scenario, all, accounts);
  }
  lift(scenario);
  if (works) judge(scenario, accounts);

  // Those who are left go on.
  stage_->recovered = 1;
  const uint32_t left = scenario.kills() ? all & ~victim : all;
  for (int r = 0; works && r < scenario.size; ++r) {
    if ((left >> r & 1) == 0) continue;
    const Rank& it = ranks_[static_cast<size_t>(r)];
    const Belongings usual = it.scenarios < kWarmUp ? Belongings{} : it.usual;
    (void)!::send(it.orders.get(), &usual, sizeof usual, MSG_NOSIGNAL);
  }
  Accounts after;
  works = works && collect(scenario, left, after);
  for (int r = 0; works && r < scenario.size; ++r) {
    const Account* account = after[static_cast<size_t>(r)].get();
    if (account == nullptr) continue;
    if (account->recovery[0] != 0) {
      complain(scenario, r, std::string("no new communicator: ") + account->recovery);
    }
    if (account->wrong[0] != 0) complain(scenario, r, account->wrong);
    judgeLeaks(scenario, r, *account);
  }
  for (int r = 0; r < kMaxRanks; ++r) {
    if (!works || (wrong_ && r < scenario.size)) end(r);
    if (ranks_[static_cast<size_t>(r)].pid < 0) start(r);
  }
  std::error_code ignored;
  std::filesystem::remove_all(store, ignored);
  ++tally_.faults;
  Tally::Kind& kind = tally_.perFault[nameOf(scenario.fault)];
  const int64_t took = nowNanos() - begun;
  ++kind.faults;
  kind.nanos += took;
  kind.longest = std::max(kind.longest, took);
  tally_.failures += wrong_;
  return !wrong_;
}

void Conductor::judge(const Scenario& scenario, const Accounts& accounts) {
  for (int r = 0; r < scenario.size; ++r) {
    const Account* account = accounts[static_cast<size_t>(r)].get();
    if (account == nullptr) continue;
    tally_.calls += account->calls;
    if (account->wrong[0] != 0) complain(scenario, r, account->wrong);
    judgeRank(scenario, r, *account);
  }
  if (scenario.fault != Fault::Descriptors) return;
  // The rank that lacks descriptors, and nobody else, may be the reason of an error. In a child
  // each rank has seen to whom it names.
  const Account& victim = *accounts[static_cast<size_t>(scenario.victim)];
  for (int r = 0; r < scenario.size; ++r) {
    const Account& account = *accounts[static_cast<size_t>(r)];
    const bool failedInChild = account.inChild[0] != 0;
    if (r == scenario.victim || (!account.failed && !failedInChild)) continue;
    if (!victim.failed && victim.inChild[0] == 0) {
      complain(scenario, r,
               std::string("an error though the victim has none: ") +
                   (account.failed ? account.error : account.inChild));
    } else if (account.failed && !namesOnly(account, scenario.victim)) {
      complain(scenario, r,
               "names " + list(account) + ": " + account.error + "\n  the victim: " + victim.error +
                   (victim.inChild[0] != 0 ? std::string("; in a child: ") + victim.inChild : ""));
    }
  }
}

/// Of a rank that comes to the others when these have noticed and left: it finds rank 0's place
/// empty, or nobody at the address of the one that it calls first, and can say no more than that.
/// Rank 0, which waits for one that died before it came, can find that another one waits no more.
bool Conductor::namesWhoGaveUp(const Scenario& scenario, int rank, const Account& account) {
  const std::string text = account.error;
  const bool nobodyThere = text.find("does not answer at") != std::string::npos;
  const bool noLeader = account.creating && rank != 0 && namesOnly(account, 0) &&
                        (scenario.whileCreating || scenario.fault == Fault::Descriptors);
  const bool noFollower =
      account.creating && scenario.whileCreating && rank == 0 &&
      text.find("died, or gave up, while others were still joining") != std::string::npos;
  const bool gaveUp = nobodyThere || noLeader || noFollower;
  tally_.indirect += gaveUp;
  return gaveUp;
}

void Conductor::judgeRank(const Scenario& scenario, int rank, const Account& account) {
  const bool isVictim = rank == scenario.victim;
  const std::string got = "got " + list(account) + (account.creating ? " while creating: " : ": ") +
                          std::string(account.error);
  if (!scenario.breaks()) {
    if (account.failed && scenario.fault != Fault::Descriptors) complain(scenario, rank, got);
    return;
  }
  if (!account.failed) return complain(scenario, rank, "noticed nothing");
  if (scenario.fault != Fault::Stop) {
    if (account.noticedNanos > tally_.latestNotice) {
      tally_.latestNotice = account.noticedNanos;
      tally_.latestScenario = scenario.describe();
    }
    if (account.noticedNanos > kNoticed) complain(scenario, rank, "noticed late; " + got);
  }
  switch (scenario.fault) {
    case Fault::Stop:
      if (account.kind != ErrorKind::Timeout &&
          !(isVictim && account.kind == ErrorKind::PeerLost)) {
        complain(scenario, rank, got);
      } else if (!isVictim && !namesOnly(account, scenario.victim)) {
        // Who waits for the victim in an earlier call has not come to this one either; across hosts
        // a rank can only name the one that it waits for.
        if (scenario.reach == Reach::OneHost && !names(account, scenario.victim)) {
          return complain(scenario, rank, got);
        }
        ++tally_.indirect;
      }
      return;
    case Fault::Reset:
      if (account.kind != ErrorKind::PeerLost || account.rankCount != 1) {
        complain(scenario, rank, got);
      }
      return;
    default: {
      // Whoever waits for a rank that died before it said anything can only see who did not come in
      // time, others that are slow among them.
      const bool cameNot = account.creating && scenario.whileCreating &&
                           account.kind == ErrorKind::Timeout && names(account, scenario.victim);
      const bool lost = account.kind == ErrorKind::PeerLost && namesOnly(account, scenario.victim);
      if (!lost && !cameNot && !namesWhoGaveUp(scenario, rank, account)) {
        complain(scenario, rank, got);
      }
    }
  }
}

void Conductor::judgeLeaks(const Scenario& scenario, int rank, const Account& account) {
  Rank& it = ranks_[static_cast<size_t>(rank)];
  const Belongings& now = account.belongings;
  Belongings& usual = it.usual;
  if (now.mappings != 0) {
    complain(scenario, rank, std::to_string(now.mappings) + " mappings of shared memory are left");
  }
  if (++it.scenarios <= kWarmUp) {
    usual.descriptors = std::max(usual.descriptors, now.descriptors);
    usual.sockets = std::max(usual.sockets, now.sockets);
    usual.threads = std::max(usual.threads, now.threads);
    usual.heap = std::max(usual.heap, now.heap);
    return;
  }
  const auto grew = [&](const char* what, int64_t before, int64_t after) {
    if (after <= before) return;
    complain(scenario, rank,
             std::string(what) + " leak: " + std::to_string(after) + ", usually " +
                 std::to_string(before) + ", after " + std::to_string(it.scenarios) + " scenarios");
  };
  constexpr int kSlack = Belongings::kSlack;
  grew("descriptors", usual.descriptors + kSlack, now.descriptors);
  grew("sockets", usual.sockets + kSlack, now.sockets);
  grew("threads", usual.threads + kSlack, now.threads);
  grew("heap", usual.heap + Belongings::kHeapSlack, now.heap);
}

}  // namespace ctran::testing
