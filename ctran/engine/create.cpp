// How communicators are made: from a store, or from another communicator.
#include "ctran/engine/create.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "ctran/base/config.h"
#include "ctran/base/log.h"
#include "ctran/base/rank_list.h"
#include "ctran/base/sha256.h"
#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/engine/host_memory.h"
#include "ctran/engine/named.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/report.h"

namespace ctran {
namespace {

HostGroup lead(const CommunicatorOptions& options, const std::string& key, Deadline deadline,
               const Interrupt& interrupt) {
  using Reach = Leader::Reach;
  Leader leader(options.size > 1 ? Reach::AllHosts : Reach::OneHost, hostOf(options.hints));
  if (options.size == 1) return leader.gather(1, memoryFor(1), deadline, interrupt);
  options.store->set(key, leader.address().serialize());
  try {
    HostGroup group = leader.gather(options.size, memoryFor(options.size), deadline, interrupt);
    options.store->remove(
        key);  // all ranks have read it; the name is free for another communicator
    return group;
  } catch (...) {
    try {
      options.store->remove(key);
    } catch (...) {
      // What went wrong first is what the user has to know.
    }
    throw;
  }
}

using std::chrono::milliseconds;

milliseconds timeLeft(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, milliseconds(0));
}

Error didNotCome(const CommunicatorOptions& options, int rank, const std::string& why) {
  return Error(ErrorKind::Timeout,
               "rank " + std::to_string(options.rank) + " waited for rank " + std::to_string(rank) +
                   " of communicator '" + options.name + "', which did not come (" + why + ")",
               {rank}, "new_comm", "see whether it started, with the same name and store");
}

/// How a rank meets others in a tree (BootstrapTree) over a store: one attempt, which the key of
/// rank 0 names. Where a rank listens that has children is in the store as long as this exists;
/// that key is no part of it.
class TreeAttempt {
 public:
  TreeAttempt(const CommunicatorOptions& options, const LeaderAddress& root)
      : options_(options),
        tree_{options.rank, options.size},
        root_(root),
        prefix_("ctran/" + options.name + "/" +
                std::to_string(publicNameOf(root.key, options.name)) + "/") {
    if (tree_.children() == 0) return;
    own_ = std::make_unique<Leader>(Leader::Reach::AllHosts, hostOf(options.hints), root.key);
    LeaderAddress address = own_->address();
    address.key = {};
    options.store->set(prefix_ + std::to_string(tree_.rank), address.serialize());
  }
  ~TreeAttempt() {
    if (own_ == nullptr) return;
    try {
      options_.store->remove(prefix_ + std::to_string(tree_.rank));
    } catch (...) {
      // The key that stays behind does no harm.
    }
  }
  TreeAttempt(const TreeAttempt&) = delete;
  TreeAttempt& operator=(const TreeAttempt&) = delete;

  bool isOf(const LeaderAddress& root) const { return root.key == root_.key; }

  /// Joins the rank above. Nothing if that cannot be reached, or does not come within `patience`:
  /// rank 0 may be of an earlier run.
  std::optional<HostGroup> join(milliseconds patience, Deadline deadline,
                                const Interrupt& interrupt, NotJoined& reason) const {
    LeaderAddress parent = root_;
    if (tree_.parent() > 0) {
      try {
        parent = LeaderAddress::parse(options_.store->get(prefix_ + std::to_string(tree_.parent()),
                                                          std::min(patience, timeLeft(deadline))));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        if (timeLeft(deadline).count() > 0) return std::nullopt;
        throw didNotCome(options_, tree_.parent(), error.message());
      }
      parent.key = root_.key;
    }
    return ctran::join(parent, tree_.rank, tree_.size, deadline, interrupt, &reason,
                       hostOf(options_.hints), openOwnPidFd(), own_.get());
  }

 private:
  const CommunicatorOptions& options_;
  const BootstrapTree tree_;
  const LeaderAddress root_;
  const std::string prefix_;
  std::unique_ptr<Leader> own_;
};

HostGroup follow(const CommunicatorOptions& options, const std::string& key, Deadline deadline,
                 const Interrupt& interrupt) {
  bool stale = false;
  milliseconds patience{1000};  // with ranks between this one and rank 0
  std::optional<TreeAttempt> attempt;
  while (true) {
    const auto left = timeLeft(deadline);
    std::string text;
    try {
      text = options.store->get(key, left);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Timeout) throw;
      throw didNotCome(options, attempt ? BootstrapTree::parentOf(options.rank) : 0,
                       error.message());
    }
    NotJoined reason;
    const LeaderAddress root = LeaderAddress::parse(text);
    const bool inTree = options.size > BootstrapTree::kMostInOneLevel;
    if (inTree && (!attempt || !attempt->isOf(root))) {
      attempt.reset();
      attempt.emplace(options, root);
    }
    auto group = inTree ? attempt->join(patience, deadline, interrupt, reason)
                        : join(root, options.rank, options.size, deadline, interrupt, &reason,
                               hostOf(options.hints));
    if (group) return std::move(*group);
    patience = std::min(2 * patience, milliseconds{60'000});
    // An address that an earlier run has left behind: rank 0 will replace it.
    if (left.count() <= 0) {
      const int above = inTree ? BootstrapTree::parentOf(options.rank) : 0;
      throw Error(
          ErrorKind::Timeout,
          "rank " + std::to_string(options.rank) + " waited for rank " + std::to_string(above) +
              " of communicator '" + options.name +
              (reason.why.empty() ? "'; the store only holds the address of one that has ended"
                                  : "', which cannot be reached: " + reason.why),
          {above}, "new_comm", "see whether that rank started; use a fresh store per run");
    }
    if (!stale)
      log(LogComponent::Engine, LogLevel::Debug, "the store holds a stale address of '%s'",
          key.c_str());
    stale = true;
    if (interrupt) interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

HostGroup rendezvous(const CommunicatorOptions& options, Deadline deadline,
                     const Interrupt& interrupt) {
  const std::string key = "ctran/" + options.name + "/leader";
  return options.rank == 0 ? lead(options, key, deadline, interrupt)
                           : follow(options, key, deadline, interrupt);
}

}  // namespace

std::string hostOf(const std::map<std::string, std::string>& hints) {
  const auto hint = hints.find("ctran::host");
  return hostIdentity(hint == hints.end() ? "" : hint->second);
}

UniqueFd memoryFor(int size) {
  if (size > Arena::kMaxRanks) return {};
  return createSharedMemory("ctran", memoryBytes(size));
}

size_t memoryBytes(int size) { return Arena::bytesFor(size) + Recording::bytesFor(size); }

uint64_t publicNameOf(const JobKey& key, const std::string& name) {
  const std::string text = "trace " + name;
  const Digest digest = hmacSha256(key, std::as_bytes(std::span(text)));
  uint64_t group;
  std::memcpy(&group, digest.data(), sizeof group);
  return group;
}

int rankToTell(const HostMap& map) {
  const std::span<const int> next = map.ranks((map.host() + 1) % map.hosts());
  return next[map.index() % next.size()];
}

std::shared_ptr<Communicator> makeCommunicator(const CommunicatorOptions& options, HostGroup group,
                                               Deadline deadline, WaitHooks* hooks) {
  std::shared_ptr<Communicator> communicator;
  if (group.hosts) {
    HostMemory memory = shareMemory(options, *group.hosts, deadline, hooks);
    // One that goes waits for what it has sent to arrive.
    communicator.reset(new Communicator(options, std::move(*group.hosts), std::move(memory)),
                       [](Communicator* last) { Progress::dispose([last] { delete last; }); });
  } else {
    communicator.reset(new Communicator(options, std::move(group)));
  }
  communicator->start(hooks);
  logCreation(*communicator);
  announce(communicator);
  return communicator;
}

std::shared_ptr<Communicator> Communicator::create(const CommunicatorOptions& options,
                                                   WaitHooks* hooks) {
  if (options.size < 1 || options.size > kMaxRanks) {
    throw Error(ErrorKind::InvalidArgument, "a communicator has 1 to " + std::to_string(kMaxRanks) +
                                                " ranks, not " + std::to_string(options.size));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    throw Error(ErrorKind::InvalidArgument, "rank " + std::to_string(options.rank) +
                                                " is not in [0, " + std::to_string(options.size) +
                                                ")");
  }
  if (options.size > 1 && !options.store) {
    throw Error(ErrorKind::InvalidArgument, "ranks need a store to find each other");
  }
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::InvalidArgument, "the timeout of a communicator must be positive");
  }
  checkHints(options.hints);
  checkConfig({"CTRAN_"});
  const Deadline deadline = deadlineAfter(options.timeout);
  static std::atomic<bool> isFirst{true};
  if (isFirst.exchange(false)) setLogRank(options.rank);
  HostGroup group = [&] {
    const Blocking blocking(hooks);
    return rendezvous(options, deadline, interruptOf(hooks));
  }();
  return makeCommunicator(options, std::move(group), deadline, hooks);
}

}  // namespace ctran
