// Communicators that are made from another one, and memory for what is built on one.
#include <algorithm>
#include <array>
#include <cstring>

#include "ctran/base/rank_list.h"
#include "ctran/base/sha256.h"
#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/create.h"
#include "ctran/engine/exchange_all.h"

namespace ctran {
namespace {

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
  return Error(error.kind(),
               std::string(op) + ": rank " + std::to_string(self) + " could not " + doing +
                   " ranks " + listed(ranks) + " (numbered from 0 here): " + error.message(),
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

/// Every rank tells all others of which group it is, by a digest of the list of its ranks and its
/// name. On one host the first of a list also tells where it listens; between hosts each rank does,
/// and the rest is known from where the parent's ranks are.
struct NearAnnouncement {
  Digest group;
  LeaderAddress leader;
};
struct FarAnnouncement {
  std::array<std::byte, 6> group;
  uint16_t port;
};
static_assert(sizeof(FarAnnouncement) == 8);

Digest digestOf(std::span<const int> ranks, const std::string& name) {
  return Sha256().add(std::as_bytes(ranks)).add(std::as_bytes(std::span(name))).finish();
}

template <class Announcement>
void requireSameGroup(const std::vector<Announcement>& all, std::span<const int> ranks, int rank) {
  for (const int r : ranks) {
    if (all[r].group == all[rank].group) continue;
    throw Error(ErrorKind::Mismatch,
                "split: rank " + std::to_string(rank) + " and rank " + std::to_string(r) +
                    " passed different lists of ranks, or different names",
                {rank, r}, "split", "all members of a new group pass the same list and name");
  }
}

/// Known to the ranks of the communicator with that key alone, and different for each group.
JobKey keyOfGroup(const JobKey& key, uint64_t number, const Digest& group) {
  const std::string text = "split " + std::to_string(number) + " ";
  std::vector<std::byte> message(text.size() + group.size());
  std::memcpy(message.data(), text.data(), text.size());
  std::memcpy(message.data() + text.size(), group.data(), group.size());
  return hmacSha256(key, message);
}

HostGroup joinedGroup(const LeaderAddress& leader, const CommunicatorOptions& options,
                      Deadline deadline, const Interrupt& interrupt) {
  NotJoined reason;
  auto group =
      join(leader, options.rank, options.size, deadline, interrupt, &reason, hostOf(options.hints));
  if (group) return std::move(*group);
  const bool late = std::chrono::steady_clock::now() >= deadline;
  throw Error(late ? ErrorKind::Timeout : ErrorKind::PeerLost,
              (late ? "rank 0 does not answer" : "rank 0 died, or gave up") + said(reason), {0},
              "split", "see its output for the reason");
}

}  // namespace

void Communicator::checkList(std::span<const int> ranks) const {
  const auto reject = [](const std::string& why) -> void {
    throw Error(ErrorKind::InvalidArgument, "split: " + why);
  };
  std::vector<bool> listed(size());
  for (const int r : ranks) {
    if (r < 0 || r >= size()) {
      reject("Invalid rank " + std::to_string(r) + " in ranks. Valid ranks are 0 to " +
             std::to_string(size() - 1));
    }
    if (listed[r]) reject("Rank " + std::to_string(r) + " appears multiple times in ranks");
    listed[r] = true;
  }
  if (!ranks.empty() && !listed[rank()]) {
    reject("Current rank " + std::to_string(rank()) +
           " is not included in the provided ranks list");
  }
}

std::shared_ptr<Communicator> Communicator::split(std::span<const int> ranks,
                                                  const std::string& name,
                                                  std::chrono::nanoseconds timeout,
                                                  WaitHooks* hooks) {
  CommunicatorOptions options;
  options.name = name;
  options.hints = hints_;
  options.gpus = gpus_;
  options.functions = takesFunctions_ || gpus_;
  return makeGroup(ranks, std::move(options), {}, timeout, hooks);
}

std::shared_ptr<Communicator> Communicator::splitPart(std::span<const int> ranks,
                                                      const std::string& name,
                                                      const PartOptions& part, WaitHooks* hooks) {
  CommunicatorOptions options;
  options.name = name;
  options.hints = hints_;
  options.hints.erase("ctran::algorithm");
  options.gpus = part.gpus;
  options.functions = false;
  return makeGroup(ranks, std::move(options), part.hosts, {}, hooks);
}

std::shared_ptr<Communicator> Communicator::makeGroup(std::span<const int> ranks,
                                                      CommunicatorOptions options,
                                                      std::span<const int> hosts,
                                                      std::chrono::nanoseconds timeout,
                                                      WaitHooks* hooks) {
  checkList(ranks);
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  options.size = static_cast<int>(ranks.size());
  options.timeout = std::chrono::nanoseconds(nanosOr(timeout));
  if (!hosts.empty() && !ranks.empty()) {
    options.hints["ctran::host"] = "part " + std::to_string(hosts[options.rank]);
  }
  const Meet meet =
      spansHosts() ? meetFar(ranks, options, hosts, hooks) : meetNear(ranks, options, hosts, hooks);
  if (ranks.empty()) return nullptr;
  const Deadline deadline = deadlineAfter(options.timeout);
  WhileItWorks whileThisWorks(core_, hooks);
  try {
    HostGroup group = [&] {
      const Blocking blocking(hooks);
      return meet(deadline, interruptOf(&whileThisWorks));
    }();
    options.timeout = this->timeout();
    return makeCommunicator(options, std::move(group), deadline, &whileThisWorks);
  } catch (const Error& error) {
    core_.poll();
    core_.throwIfFailed();  // that is why others have given up
    if (error.kind() == ErrorKind::InvalidArgument) throw;
    // The others wait for this rank, and only this communicator can tell them.
    throw core_.fail(inGroup(error, ranks, rank(), "split", "make '" + options.name + "' of"));
  }
}

/// All ranks of this communicator are on one host. Members that count as being on several (`hosts`)
/// meet over the network.
Communicator::Meet Communicator::meetNear(std::span<const int> ranks,
                                          const CommunicatorOptions& options,
                                          std::span<const int> hosts, WaitHooks* hooks) {
  NearAnnouncement own{};
  own.group = digestOf(ranks, options.name);
  std::shared_ptr<Leader> leader;
  if (!ranks.empty() && options.rank == 0) {
    const bool reachesAll = !hosts.empty() && ranks.size() > 1;
    leader = std::make_shared<Leader>(reachesAll ? Leader::Reach::AllHosts : Leader::Reach::OneHost,
                                      hostOf(options.hints));
    own.leader = leader->address();
  }
  const auto all = exchangeAll(*this, own, options.timeout, hooks, /*makesGroup=*/true);
  if (ranks.empty()) return nullptr;
  requireSameGroup(all, ranks, rank());
  return [leader, address = all[ranks[0]].leader, &options](Deadline deadline,
                                                            const Interrupt& interrupt) {
    if (!leader) return joinedGroup(address, options, deadline, interrupt);
    return leader->gather(options.size, memoryFor(options.size), deadline, interrupt);
  };
}

/// Ranks of this communicator are on several hosts. Each says at which port it listens for the
/// group; where that is the others know.
Communicator::Meet Communicator::meetFar(std::span<const int> ranks,
                                         const CommunicatorOptions& options,
                                         std::span<const int> hosts, WaitHooks* hooks) {
  const Digest group = digestOf(ranks, options.name);
  FarAnnouncement own{};
  std::copy_n(group.begin(), own.group.size(), own.group.begin());
  const JobKey key = keyOfGroup(key_, ++splits_, group);
  const auto ownHosts = std::make_shared<Hosts>();
  if (ranks.size() > 1) {
    try {
      *ownHosts = hostsOfOwn(key, options.rank, options.size, places_.addressesOf(rank()));
    } catch (const Error& error) {
      const Error said =
          isForWantOfDescriptors(error) ? descriptorError(options.rank, error.message()) : error;
      throw core_.fail(inGroup(said, ranks, rank(), "split", "make '" + options.name + "' of"));
    }
    own.port = ownHosts->acceptor->addresses().front().port;
  }
  const auto all = exchangeAll(*this, own, options.timeout, hooks, /*makesGroup=*/true);
  if (ranks.empty()) return nullptr;
  requireSameGroup(all, ranks, rank());
  std::vector<uint16_t> ports;
  for (const int r : ranks) ports.push_back(all[r].port);

  const auto isNear = [&](int i) {
    return hosts.empty() ? places_.siteOf(ranks[i]).host == places_.siteOf(rank()).host
                         : hosts[i] == hosts[options.rank];
  };
  std::vector<int> near;  // members of this rank's host, as the group calls them
  for (int i = 0; i < options.size; ++i) {
    if (isNear(i)) near.push_back(i);
  }
  const bool onOneHost = std::ssize(near) == options.size && options.size <= Arena::kMaxRanks;
  return [=, this, &options, ports = std::move(ports)](Deadline deadline,
                                                       const Interrupt& interrupt) {
    if (options.size == 1) return Leader().gather(1, memoryFor(1), deadline, interrupt);
    if (onOneHost && options.rank == 0) {
      return ownHosts->local->gather(options.size, memoryFor(options.size), deadline, interrupt);
    }
    if (onOneHost) {
      return joinedGroup(localLeader(key, 0, ports[0], hostOf(options.hints)), options, deadline,
                         interrupt);
    }
    ownHosts->neighbours = neighboursAmong(near, options.rank);
    const int first = ownHosts->neighbours.ranks[0];
    ownHosts->neighbours.port = ports[first];
    // If another rank of the host has the places, this one finds them in the memory of the host.
    if (first == options.rank || options.size <= BootstrapTree::kMostInOneLevel) {
      ownHosts->places = places_.selected(ranks, ports, hosts);
    }
    HostGroup group;
    group.hosts = std::make_unique<Hosts>(std::move(*ownHosts));
    return group;
  };
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
  const Blocking blocking(hooks);
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
