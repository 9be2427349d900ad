#include "ctran/bootstrap/hand_over.h"

#include <algorithm>
#include <cstring>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/rank_list.h"
#include "ctran/base/text.h"
#include "ctran/bootstrap/hand_over_messages.h"
#include "ctran/bootstrap/local_call.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"

namespace ctran::hand_over {
namespace {

/// Whom this rank calls: rank 0, or in a tree its parent.
int leaderOf(int rank, int size) {
  return size > BootstrapTree::kMostInOneLevel ? BootstrapTree::parentOf(rank) : 0;
}

std::vector<NetAddress> addressesByReach(const LeaderAddress& leader) {
  const std::vector<NetAddress> addresses(leader.addresses.begin(), leader.addresses.end());
  const std::string host = textOf(leader.host);
  const bool sameMachine = host.substr(0, host.find('/')) == bootIdentity();
  return byReach(addresses, localAddresses(), sameMachine);
}

/// Connects to the leader; empty, and `notJoined`, if it cannot be reached.
Socket callLeader(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                  const Interrupt& interrupt, NotJoined& notJoined) {
  Connector connector(addressesByReach(leader), leader.key,
                      {rank, size, leaderOf(rank, size), Purpose::Join});
  Connector::State state{};
  try {
    state = awaitVerdict(connector, deadline, interrupt);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Timeout) throw;
    notJoined = {kNoAnswer, true};
    return {};
  }
  if (state == Connector::State::Welcome) return connector.takeSocket();
  if (state == Connector::State::Failed) {
    notJoined = {connector.why(), connector.somebodyListens()};
    return {};
  }
  if (connector.verdict() == Verdict::OtherSize) throw sizeError(rank, size, 0);
  throw Error(ErrorKind::InvalidArgument,
              "rank " + std::to_string(rank) + " cannot join: it " + text(connector.verdict()),
              {rank}, kOp, "give every process a rank of its own");
}

Error senselessError() {
  return Error(ErrorKind::System, "rank 0 sent an answer that makes no sense", {0}, kOp);
}

/// What rank 0 says of another rank, which it has to name.
Error saidByLeader(const Answer& answer, int size) {
  if (answer.detail >= static_cast<uint64_t>(size)) return senselessError();
  const int rank = static_cast<int>(answer.detail);
  if (answer.reply == Reply::NoDescriptor) return descriptorError(rank);
  return lostError(rank, "as rank 0 says, rank " + std::to_string(rank));
}

/// A leader that has given up has hung up, and has said why before: that is read next.
void sayBeforeReading(const UniqueFd& socket, std::span<const std::byte> what, Deadline deadline,
                      const Interrupt& interrupt) {
  try {
    sendAll(socket, what, {}, deadline, interrupt);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::PeerLost) throw;
  }
}

HostGroup exchangePlaces(const UniqueFd& socket, const JobKey& key, int rank, int size,
                         const std::string& host, Deadline deadline, const Interrupt& interrupt) {
  OwnHosts own = makeHosts(key, rank, size, host);
  OnePlace one{own.places[0], own.places.siteOf(0)};
  sayBeforeReading(socket, bytesOf(one), deadline, interrupt);
  Answer verdict{};
  receiveAll(socket, bytesOf(verdict), 0, deadline + kGrace, interrupt);
  if (verdict.reply == Reply::Missing) throw missingError(rank, verdict.detail);
  if (verdict.reply == Reply::Lost || verdict.reply == Reply::NoDescriptor) {
    throw saidByLeader(verdict, size);
  }
  if (verdict.reply != Reply::Welcome || verdict.detail > Places::mostBytes(size)) {
    throw senselessError();
  }
  std::vector<std::byte> bytes(verdict.detail);
  receiveAll(socket, bytes, 0, deadline + kGrace, interrupt);
  own.hosts->places = Places::received(std::move(bytes), size, 0);
  if (own.hosts->places.size() != size) throw senselessError();
  own.hosts->neighbours = neighboursOf(own.hosts->places, rank);
  HostGroup group;
  group.hosts = std::move(own.hosts);
  return group;
}

}  // namespace
}  // namespace ctran::hand_over

namespace ctran {

std::string LeaderAddress::serialize() const {
  return {reinterpret_cast<const char*>(this), sizeof *this};
}

LeaderAddress LeaderAddress::parse(const std::string& text) {
  LeaderAddress address;
  if (text.size() != sizeof address) {
    throw Error(ErrorKind::System, "the store holds something else than a leader's address", {}, {},
                "give every communicator a store prefix or a name of its own");
  }
  std::memcpy(&address, text.data(), sizeof address);
  return address;
}

LeaderAddress LeaderAddress::forOccasion(std::string_view occasion) const {
  // Keeps those apart who may join anyhow, so any hash does: FNV-1a. None for no occasion.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : occasion) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  LeaderAddress address = *this;
  if (occasion.empty()) return address;
  for (int i = 0; i < 8; ++i) address.key[i] ^= static_cast<std::byte>(hash >> (8 * i));
  return address;
}

bool LeaderAddress::isDeserted(const std::string& fromHost) const {
  constexpr std::chrono::milliseconds kPatience{100};
  try {
    if (fromHost != hand_over::textOf(host)) {
      return refuse(hand_over::addressesByReach(*this), kPatience);
    }
    return !connectAbstract(hand_over::textOf(socketName), Deadline{});
  } catch (const Error&) {  // too many call it, or there is no network: who knows
    return false;
  }
}

Leader::Leader(const JobKey& key, const std::string& socketName) {
  copyText(address_.socketName, socketName);
  address_.key = key;
  local_ = std::make_unique<Acceptor>(socketName, key);
}

Leader::Leader(Reach reach, const std::string& host) : Leader(reach, host, randomKey()) {}

Leader::Leader(Reach reach, const std::string& host, const JobKey& key)
    : Leader(key, freshSocketName()) {
  copyText(address_.host, host);
  if (reach == Reach::OneHost) return;
  try {
    acceptor_ = std::make_unique<Acceptor>(localAddresses(), address_.key, 0, 0);
    const std::vector<NetAddress>& addresses = acceptor_->addresses();
    std::copy_n(addresses.begin(), std::min(addresses.size(), kMaxAddresses),
                address_.addresses.begin());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::InvalidArgument) throw;
    log(LogComponent::Bootstrap, LogLevel::Debug, "ranks of one host only: %s", error.what());
  }
}

void Leader::dismiss() {
  local_->dismiss();
  if (acceptor_) acceptor_->dismiss();
}

std::set<std::string> Leader::takeStrangers() {
  std::set<std::string> strangers = local_->takeStrangers();
  if (acceptor_) strangers.merge(acceptor_->takeStrangers());
  return strangers;
}

HostGroup Leader::gather(int size, UniqueFd memory, Deadline deadline, const Interrupt& interrupt,
                         UniqueFd brings, std::string_view occasion) {
  return hand_over::gather(*local_, acceptor_.get(), address_.forOccasion(occasion), size,
                           std::move(memory), std::move(brings), deadline, interrupt, hasEnded_);
}

Hosts hostsOfOwn(const JobKey& key, int rank, int size, const std::vector<NetAddress>& addresses) {
  Hosts hosts;
  hosts.key = key;
  hosts.acceptor = std::make_unique<Acceptor>(addresses, key, rank, size);
  const int port = hosts.acceptor->addresses().front().port;
  hosts.local = std::make_unique<Leader>(key, hand_over::localSocketName(key, rank, port));
  return hosts;
}

Neighbours neighboursOf(const Places& places, int rank) {
  return hand_over::NeighbourLists(places).of(rank);
}

Neighbours neighboursAmong(std::span<const int> ofHost, int rank) {
  const auto at = std::lower_bound(ofHost.begin(), ofHost.end(), rank) - ofHost.begin();
  const auto own = ofHost.subspan(static_cast<size_t>(at) / Neighbours::kMost * Neighbours::kMost);
  const auto count = std::min<size_t>(own.size(), Neighbours::kMost);
  Neighbours neighbours;
  neighbours.count = static_cast<int32_t>(count);
  std::copy_n(own.begin(), count, neighbours.ranks.begin());
  return neighbours;
}

LeaderAddress localLeader(const JobKey& key, int rank, int port, const std::string& host) {
  LeaderAddress leader;
  copyText(leader.socketName, hand_over::localSocketName(key, rank, port));
  copyText(leader.host, host);
  leader.key = key;
  return leader;
}

HostGroup shareHost(Hosts& hosts, int rank, UniqueFd memory, Deadline deadline,
                    const Interrupt& interrupt) {
  const std::vector<int> local = hosts.neighbours.list();
  const auto size = static_cast<int>(local.size());
  const auto index = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  const std::unique_ptr<Leader> own = std::move(hosts.local);
  bool interrupted = false;
  const Interrupt marked = [&] {
    interrupted = true;
    if (interrupt) interrupt();
    interrupted = false;
  };
  try {
    if (index == 0) {
      return own->gather(size, std::move(memory), deadline, marked);
    }
    const std::string host = hostIdentity();
    const LeaderAddress leader = localLeader(hosts.key, local[0], hosts.neighbours.port, host);
    auto group = join(leader, index, size, deadline, marked, nullptr, host);
    if (group) return std::move(*group);
    throw Error(ErrorKind::PeerLost, "the first rank of the host died, or gave up", {0},
                hand_over::kOp, "see its output for the reason");
  } catch (const Error& error) {
    if (interrupted) throw;  // not of these ranks, nor in their numbers
    std::vector<int> ranks;
    for (const int r : error.ranks()) {
      if (r >= 0 && r < size) ranks.push_back(local[r]);
    }
    if (ranks.empty()) ranks.push_back(rank);  // who has no descriptor left, for example
    throw Error(error.kind(),
                "ranks " + listed(local) + " share a host, but not its memory yet (as its " +
                    "ranks 0, 1, ...): " + error.what(),
                ranks, hand_over::kOp);
  }
}

std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt, NotJoined* notJoined,
                              const std::string& host, UniqueFd brings, Leader* own) {
  using namespace hand_over;
  const std::string self = "rank " + std::to_string(rank);
  const BootstrapTree tree{rank, size};
  const bool meetsInTree = size > BootstrapTree::kMostInOneLevel;
  const int above = leaderOf(rank, size);
  const bool sameHost = host == textOf(leader.host);
  Answer answer{};
  Roster roster{};
  std::vector<UniqueFd> fds;
  NotJoined reason;
  bool isLetIn = false;
  try {
    Socket socket;
    if (sameHost) {
      LocalCall call = callLocal(textOf(leader.socketName), leader.key, deadline, interrupt);
      socket = std::move(call.socket);
      reason = {call.why, call.somebodyListens};
    } else {
      socket = callLeader(leader, rank, size, deadline, interrupt, reason);
    }
    if (!socket) {
      if (notJoined != nullptr) *notJoined = reason;
      return std::nullopt;
    }
    isLetIn = true;
    if (sameHost) {
      HostHello hello{kProtocol, rank, size, ::getpid(), processToken()};
      const int bringsFd[] = {brings.get()};
      sendAll(socket.fd(), bytesOf(hello), bringsFd, deadline, interrupt);
    }
    if (meetsInTree) {
      std::optional<JoiningRanks> joining;
      if (tree.children() > 0) {
        joining.emplace(own->local(), own->acceptor(), leader.key, size, tree.firstChild(),
                        tree.children());
        joining->watch(own->watched());
      }
      return meetInTree(joining ? &*joining : nullptr, tree, std::move(socket), leader.key, host,
                        deadline, interrupt);
    }
    const auto hear = [&] {
      receiveAll(socket.fd(), bytesOf(answer), 0, deadline + kGrace, interrupt);
      return answer.protocol == kProtocol ? answer.reply : Reply::OtherVersion;
    };
    Reply reply = hear();
    if (reply == Reply::SeveralHosts) {
      return exchangePlaces(socket.fd(), leader.key, rank, size, host, deadline, interrupt);
    }
    if (reply == Reply::Welcome) {
      Receipt receipt = Receipt::All;
      std::string why;
      try {
        fds = receiveAll(socket.fd(), bytesOf(roster), static_cast<size_t>(size) + 1,
                         deadline + kGrace, interrupt);
      } catch (const Error& error) {
        if (error.op() != kNoDescriptors) throw;
        receipt = Receipt::NoDescriptor;
        why = error.message();
      }
      sayBeforeReading(socket.fd(), bytesOf(receipt), deadline + kGrace, interrupt);
      if (receipt != Receipt::All) throw descriptorError(rank, why);
      hear();
    }
  } catch (const Error& error) {
    if (!error.ranks().empty()) throw;  // rank 0 has said who
    if (isForWantOfDescriptors(error)) throw descriptorError(rank, error.message());
    if (error.kind() == ErrorKind::PeerLost) {
      throw Error(
          ErrorKind::PeerLost,
          "rank " + std::to_string(above) + " died, or gave up, while " + self + " was joining",
          {above}, kOp, "see its output for the reason");
    }
    if (error.kind() == ErrorKind::Timeout) {
      if (!isLetIn && notJoined != nullptr) *notJoined = {kNoAnswer, true};
      throw Error(ErrorKind::Timeout,
                  self + " has joined rank " + std::to_string(above) +
                      ", which still waits for others, or hangs",
                  {above}, kOp, kMissingHint);
    }
    throw;
  }
  if (answer.protocol != kProtocol) throw versionError(rank);
  // A roster has room for so many, and of more ranks the leader tells places.
  if (answer.reply == Reply::Welcome && size > kMaxRanks) throw senselessError();
  switch (answer.reply) {
    case Reply::Welcome:
      break;
    case Reply::Missing:
      throw missingError(rank, answer.detail);
    case Reply::Lost:
    case Reply::NoDescriptor:
      throw saidByLeader(answer, size);
    default:
      if (const auto refusal = refusalOf(answer, rank, size)) throw *refusal;
      throw senselessError();
  }
  HostGroup group;
  group.memory = std::move(fds[0]);
  for (int r = 0; r < size; ++r) group.brought.push_back(std::move(fds[r + 1]));
  group.pids.assign(roster.pids, roster.pids + size);
  group.processes.assign(roster.processes, roster.processes + size);
  return group;
}

}  // namespace ctran
