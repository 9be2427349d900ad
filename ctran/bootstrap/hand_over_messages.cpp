#include "ctran/bootstrap/hand_over_messages.h"

#include <unistd.h>

#include <bit>

#include "ctran/base/rank_list.h"
#include "ctran/bootstrap/local_call.h"

namespace ctran::hand_over {

void answer(const UniqueFd& socket, Reply reply, uint64_t detail) {
  Answer message{kProtocol, reply, detail};
  try {
    sendAll(socket, bytesOf(message), {}, Deadline{});
  } catch (const Error&) {
    // It is gone.
  }
}

Error missingError(int waiting, uint64_t missing) {
  std::vector<int> ranks;
  for (; missing != 0; missing &= missing - 1) ranks.push_back(std::countr_zero(missing));
  return missingError(waiting, ranks);
}

Error missingError(int waiting, const std::vector<int>& ranks) {
  return Error(ErrorKind::Timeout,
               "rank " + std::to_string(waiting) + " waited for rank" +
                   (ranks.size() == 1 ? " " : "s ") + listed(ranks) + ", who did not join",
               ranks, kOp, kMissingHint);
}

Error lostError(int rank, const std::string& who) {
  return Error(ErrorKind::PeerLost, who + " died, or gave up, while others were still joining",
               {rank}, kOp, "see its output for the reason");
}

Error endedError(int rank) {
  return Error(ErrorKind::PeerLost,
               "rank " + std::to_string(rank) +
                   " has ended before it joined: nothing listens at its address any more",
               {rank}, kOp, "see its output for the reason");
}

}  // namespace ctran::hand_over

namespace ctran {

/// `why`: what the system says, on that rank itself.
Error descriptorError(int rank, const std::string& why) {
  return Error(ErrorKind::System,
               "rank " + std::to_string(rank) + " has no descriptor left to join" +
                   (why.empty() ? "" : ": " + why),
               {rank}, hand_over::kOp, "raise its limit (ulimit -n), or see what it keeps open");
}

bool isForWantOfDescriptors(const Error& error) {
  return error.op() == kMakingSockets || error.op() == kNoDescriptors;
}

}  // namespace ctran

namespace ctran::hand_over {

Error sizeError(int rank, int size, int leaderSize) {
  return Error(ErrorKind::Mismatch,
               "rank " + std::to_string(rank) + " was started with world size " +
                   std::to_string(size) + ", rank 0 with " +
                   (leaderSize == 0 ? "another" : std::to_string(leaderSize)),
               {0, rank}, kOp, "start all ranks with the same world size");
}

Error versionError(int rank) {
  return Error(
      ErrorKind::System,
      "rank 0 and rank " + std::to_string(rank) + " run different versions of this library",
      {0, rank}, kOp);
}

std::optional<Error> refusalOf(const Answer& answer, int rank, int size) {
  const std::string self = "rank " + std::to_string(rank);
  switch (answer.reply) {
    case Reply::OtherVersion:
      return versionError(rank);
    case Reply::OtherSize:
      return sizeError(rank, size, static_cast<int>(answer.detail));
    case Reply::NoSuchRank:
      return Error(ErrorKind::InvalidArgument, self + " cannot join: of " + std::to_string(size) +
                                                   " ranks it is none that is waited for there");
    case Reply::RankTaken:
      return Error(ErrorKind::InvalidArgument, self + " has joined already, as another process",
                   {rank}, kOp, "give every process a rank of its own");
    default:
      return std::nullopt;
  }
}

OwnHosts makeHosts(const JobKey& key, int rank, int size, const std::string& host) {
  OwnHosts own;
  const std::vector<NetAddress> addresses = localAddresses();
  own.hosts = std::make_unique<Hosts>(hostsOfOwn(key, rank, size, addresses));
  Place place;
  place.rank = rank;
  place.pid = static_cast<uint32_t>(::getpid());
  place.port = own.hosts->acceptor->addresses().front().port;
  own.places = Places(place, Site::at(host, addresses));
  return own;
}

NeighbourLists::NeighbourLists(const Places& places) : places_(places), hosts_(places.hosts()) {
  for (int r = 0; r < places.size(); ++r) {
    const auto host = static_cast<size_t>(hosts_[r]);
    if (ranks_.size() <= host) ranks_.resize(host + 1);
    ranks_[host].push_back(r);
  }
}

Neighbours NeighbourLists::of(int rank) const {
  const std::vector<int>& all = ranks_[hosts_[rank]];
  Neighbours neighbours = neighboursAmong(all, rank);
  neighbours.port = places_[neighbours.ranks[0]].port;
  return neighbours;
}

std::string localSocketName(const JobKey& key, int rank, int port) {
  const std::string text = "socket " + std::to_string(rank) + " " + std::to_string(port);
  return socketName(hmacSha256(key, std::as_bytes(std::span(text))));
}

}  // namespace ctran::hand_over
