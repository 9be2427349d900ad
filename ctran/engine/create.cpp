// How communicators are made: from a store, or from another communicator.
#include "ctran/engine/create.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "ctran/base/config.h"
#include "ctran/base/log.h"
#include "ctran/base/rank_list.h"
#include "ctran/base/sha256.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/engine/named.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/report.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {
namespace {

HostMap mapOf(const Hosts& hosts, int rank) {
  std::vector<std::string> names;
  for (const Place& place : hosts.places) {
    names.emplace_back(place.host.data(), ::strnlen(place.host.data(), place.host.size()));
  }
  return {names, rank, Arena::kMaxRanks};
}

/// This rank cannot be one of them: tells the others why.
void cannotJoin(const CommunicatorOptions& options, Hosts hosts, const HostMap& map,
                const Error& error) {
  class Nobody final : public Transport::Listener {
    void failed(const Error&) override {}
    void wakeUp() override {}
  } nobody;
  if (map.hosts() < 2) return;
  try {
    const size_t bytes = Board::bytesFor(options.size);
    Board board(SharedMapping::map(createSharedMemory("ctran", bytes), bytes), options.rank,
                options.size, false);
    TcpTransport transport(board, std::move(hosts), nobody);
    transport.connect(rankToTell(map));
    transport.tell(error);
    transport.leave(kLinger);
  } catch (const Error& another) {  // as this rank has no descriptors left, which may be the reason
    log(LogComponent::Engine, LogLevel::Debug, "could not tell other hosts of a failure: %s",
        another.what());
  }
}

HostGroup shareMemory(const CommunicatorOptions& options, Hosts& hosts, const HostMap& map,
                      Deadline deadline, WaitHooks* hooks) {
  const std::vector<int>& local = map.local();
  if (local.size() < 2) return {};
  try {
    return shareHost(hosts, local, options.rank, hostMemoryBytes(map), deadline,
                     interruptOf(hooks));
  } catch (const Error& error) {
    cannotJoin(options, std::move(hosts), map, error);
    throw;
  }
}

/// What this host's ranks share; their own if they are alone, so that all hosts are alike; null if
/// no ranks share a host: then `local` has memory for what this rank records, and nothing else.
std::shared_ptr<SharedMapping> mappedMemory(const HostMap& map, HostGroup& local) {
  const size_t bytes = hostMemoryBytes(map);
  if (!local.memory) local.memory = createSharedMemory("ctran", bytes);
  if (!map.isShared()) return nullptr;
  return SharedMapping::map(local.memory, bytes);
}

HostGroup lead(const CommunicatorOptions& options, const std::string& key, Deadline deadline,
               const Interrupt& interrupt) {
  using Reach = Leader::Reach;
  Leader leader(options.size > 1 ? Reach::AllHosts : Reach::OneHost, hostOf(options.hints));
  if (options.size == 1) return leader.gather(1, memoryFor(1), deadline, interrupt);
  options.store->set(key, leader.address().serialize());
  try {
    HostGroup group = leader.gather(options.size, memoryFor(options.size), deadline, interrupt);
    options.store->remove(key);  // everybody has read it; the name is free for another communicator
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

HostGroup follow(const CommunicatorOptions& options, const std::string& key, Deadline deadline,
                 const Interrupt& interrupt) {
  bool stale = false;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    std::string text;
    try {
      text = options.store->get(key, std::max(left, std::chrono::milliseconds(0)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Timeout) throw;
      throw Error(ErrorKind::Timeout,
                  "rank " + std::to_string(options.rank) + " waited for rank 0 of communicator '" +
                      options.name + "', which did not come (" + error.what() + ")",
                  {0}, "new_comm", "see whether it started, with the same name and store");
    }
    NotJoined reason;
    auto group = join(LeaderAddress::parse(text), options.rank, options.size, deadline, interrupt,
                      &reason, hostOf(options.hints));
    if (group) return std::move(*group);
    // An address that an earlier run has left behind: rank 0 will replace it.
    if (left.count() <= 0) {
      throw Error(
          ErrorKind::Timeout,
          "rank " + std::to_string(options.rank) + " waited for rank 0 of communicator '" +
              options.name +
              (reason.why.empty() ? "'; the store only holds the address of one that has ended"
                                  : "', which cannot be reached: " + reason.why),
          {0}, "new_comm", "see whether rank 0 started; use a fresh store per run");
    }
    if (!stale)
      log(LogComponent::Engine, LogLevel::Debug, "the store holds a stale address of '%s'",
          key.c_str());
    stale = true;
    if (interrupt) interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string said(const NotJoined& reason) { return reason.why.empty() ? "" : ": " + reason.why; }

/// An error of a group that is being made, in the numbers of the communicator that it is made from;
/// if it names nobody it is about `self`, which could not `doing`.
Error inGroup(const Error& error, std::span<const int> ranks, int self, const char* op,
              const std::string& doing) {
  std::vector<int> named;
  for (const int r : error.ranks()) {
    if (r >= 0 && r < static_cast<int>(ranks.size())) named.push_back(ranks[r]);
  }
  if (named.empty()) named.push_back(self);
  std::string what = error.what();
  if (!error.hint().empty()) what.resize(what.rfind("\n  hint: "));
  return Error(error.kind(),
               std::string(op) + ": rank " + std::to_string(self) + " could not " + doing +
                   " ranks " + listed(ranks) + " (numbered from 0 here): " + what,
               named, op, error.hint());
}

/// Ends what waits for members of a new group when the communicator that it is made from fails: a
/// member that is lost before it joins, or cannot join, is only known there.
class WhileItWorks final : public WaitHooks {
 public:
  WhileItWorks(Core& core, WaitHooks* user) : core_(core), user_(user) {}
  void beforeBlocking() override {
    if (user_ != nullptr) user_->beforeBlocking();
  }
  void afterBlocking() override {
    if (user_ != nullptr) user_->afterBlocking();
  }
  void interrupted() override {
    core_.poll();
    core_.throwIfFailed();
    if (user_ != nullptr) user_->interrupted();
  }

 private:
  Core& core_;
  WaitHooks* const user_;
};

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

size_t hostMemoryBytes(const HostMap& map) {
  const auto ranks = static_cast<int>(map.local().size());
  const size_t recorded = Recording::bytesFor(ranks);
  if (!map.isShared()) return recorded;
  return Arena::bytesFor(ranks) + Board::bytesFor(ranks) + recorded;
}

int rankToTell(const HostMap& map) {
  const std::vector<int>& next = map.ranks((map.host() + 1) % map.hosts());
  return next[map.index() % next.size()];
}

std::shared_ptr<Communicator> makeCommunicator(const CommunicatorOptions& options, HostGroup group,
                                               Deadline deadline, WaitHooks* hooks) {
  std::shared_ptr<Communicator> communicator;
  if (group.hosts) {
    const HostMap map = mapOf(*group.hosts, options.rank);
    HostGroup shared = shareMemory(options, *group.hosts, map, deadline, hooks);
    auto memory = mappedMemory(map, shared);
    // One that goes waits for what it has sent to arrive.
    communicator.reset(new Communicator(options, std::move(*group.hosts), map, std::move(shared),
                                        std::move(memory)),
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
  checkConfig({"CTRAN_"});
  const Deadline deadline = deadlineAfter(options.timeout);
  static std::atomic<bool> isFirst{true};
  if (isFirst.exchange(false)) setLogRank(options.rank);
  HostGroup group = rendezvous(options, deadline, interruptOf(hooks));
  return makeCommunicator(options, std::move(group), deadline, hooks);
}

std::shared_ptr<Communicator> Communicator::split(std::span<const int> ranks,
                                                  const std::string& name,
                                                  std::chrono::nanoseconds timeout,
                                                  WaitHooks* hooks) {
  CommunicatorOptions options;
  options.name = name;
  options.hints = hints_;
  options.gpus = gpus_;
  return makeGroup(ranks, std::move(options), spansHosts(), timeout, hooks);
}

std::shared_ptr<Communicator> Communicator::splitPart(std::span<const int> ranks,
                                                      const std::string& name,
                                                      const PartOptions& part, WaitHooks* hooks) {
  CommunicatorOptions options;
  options.name = name;
  options.hints = hints_;
  options.hints.erase("ctran::algorithm");
  if (!part.host.empty()) options.hints["ctran::host"] = part.host;
  options.gpus = part.gpus;
  return makeGroup(ranks, std::move(options), spansHosts() || !part.host.empty(), {}, hooks);
}

std::shared_ptr<Communicator> Communicator::makeGroup(std::span<const int> ranks,
                                                      CommunicatorOptions options, bool reachesAll,
                                                      std::chrono::nanoseconds timeout,
                                                      WaitHooks* hooks) {
  const auto reject = [](const std::string& why) -> void {
    throw Error(ErrorKind::InvalidArgument, "split: " + why);
  };
  std::vector<bool> listed(size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size()) {
      reject("Invalid rank " + std::to_string(ranks[i]) + " in ranks. Valid ranks are 0 to " +
             std::to_string(size() - 1));
    }
    if (listed[ranks[i]]) {
      reject("Rank " + std::to_string(ranks[i]) + " appears multiple times in ranks");
    }
    listed[ranks[i]] = true;
  }
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  if (!ranks.empty() && self == ranks.end()) {
    reject("Current rank " + std::to_string(rank()) +
           " is not included in the provided ranks list");
  }
  const int newRank = static_cast<int>(self - ranks.begin());

  options.rank = newRank;
  options.size = static_cast<int>(ranks.size());
  options.timeout = std::chrono::nanoseconds(nanosOr(timeout));

  // Everybody tells everybody its list; the first of a list also where it listens.
  struct Announcement {
    uint64_t count;
    Digest ranks;  ///< of the list
    LeaderAddress leader;
  };
  Announcement own{};
  own.count = ranks.size();
  own.ranks = Sha256().add(std::as_bytes(ranks)).finish();
  std::unique_ptr<Leader> leader;
  if (!ranks.empty() && newRank == 0) {
    const bool outside = reachesAll && ranks.size() > 1;
    leader = std::make_unique<Leader>(outside ? Leader::Reach::AllHosts : Leader::Reach::OneHost,
                                      hostOf(options.hints));
    own.leader = leader->address();
  }
  const std::vector<Announcement> all = exchangeAll(*this, own, timeout, hooks);
  if (ranks.empty()) return nullptr;
  for (const int r : ranks) {
    if (all[r].count != own.count || all[r].ranks != own.ranks) {
      throw Error(ErrorKind::Mismatch,
                  "split: rank " + std::to_string(rank()) + " and rank " + std::to_string(r) +
                      " passed different lists of ranks",
                  {rank(), r}, "split", "all members of a new group pass the same list");
    }
  }

  const Deadline deadline = deadlineAfter(options.timeout);
  WhileItWorks whileThisWorks(core_, hooks);
  const Interrupt interrupt = interruptOf(&whileThisWorks);
  try {
    NotJoined reason;
    std::optional<HostGroup> group =
        leader ? leader->gather(options.size, memoryFor(options.size), deadline, interrupt)
               : join(all[ranks[0]].leader, newRank, options.size, deadline, interrupt, &reason,
                      hostOf(options.hints));
    if (!group) {
      const bool late = std::chrono::steady_clock::now() >= deadline;
      throw Error(late ? ErrorKind::Timeout : ErrorKind::PeerLost,
                  (late ? "rank 0 does not answer" : "rank 0 died, or gave up") + said(reason), {0},
                  "split", "see its output for the reason");
    }
    options.timeout = this->timeout();
    return makeCommunicator(options, std::move(*group), deadline, &whileThisWorks);
  } catch (const Error& error) {
    core_.poll();
    core_.throwIfFailed();  // that is why others have given up
    if (error.kind() == ErrorKind::InvalidArgument) throw;
    // The others wait for this rank, and only this communicator can tell them.
    throw core_.fail(inGroup(error, ranks, rank(), "split", "make '" + options.name + "' of"));
  }
}

HostGroup Communicator::handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks) {
  const std::vector<int> near = neighbours();
  const auto count = static_cast<int>(near.size());
  const auto index = static_cast<int>(std::find(near.begin(), near.end(), rank()) - near.begin());
  std::unique_ptr<Leader> leader;
  LeaderAddress own;
  if (index == 0) {
    leader = std::make_unique<Leader>();
    own = leader->address();
  }
  const std::vector<LeaderAddress> all = exchangeAll(*this, own, {}, hooks);

  const Deadline deadline = deadlineAfter(timeout());
  WhileItWorks whileThisWorks(core_, hooks);
  const Interrupt interrupt = interruptOf(&whileThisWorks);
  try {
    if (leader) {
      return leader->gather(count, createSharedMemory("ctran", bytes), deadline, interrupt,
                            std::move(brings));
    }
    NotJoined reason;
    auto group = join(all[near[0]], index, count, deadline, interrupt, &reason, hostIdentity(),
                      std::move(brings));
    if (group) return std::move(*group);
    throw Error(ErrorKind::PeerLost, "its rank 0 died, or gave up" + said(reason), {0}, {},
                "see its output for the reason");
  } catch (const Error& error) {
    core_.poll();
    core_.throwIfFailed();  // that is why others have given up
    throw core_.fail(inGroup(error, near, rank(), "new_window", "share memory with"));
  }
}

}  // namespace ctran
