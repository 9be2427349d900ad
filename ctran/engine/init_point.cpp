#include "ctran/engine/init_point.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <thread>

#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/bootstrap/hand_over_messages.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/create.h"

namespace ctran {
namespace {

constexpr std::string_view kHandlePrefix = "ctran:";
constexpr std::string_view kDigits = "0123456789abcdef";
constexpr const char* kReconfigure = "reconfigure";
constexpr const char* kMissingHint =
    "see whether all members call it, with the same uuid and the same handles in the same order";
constexpr const char* kLostHint = "leave its handle out, or see its output for the reason";
constexpr std::chrono::milliseconds kMemberPause{5};

std::string written(const LeaderAddress& address) {
  std::string text(kHandlePrefix);
  for (const char c : address.serialize()) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

LeaderAddress readHandle(const std::string& handle, size_t index) {
  // The text of a handle has the key in it, if it is a handle, so no error shows it.
  const auto bad = [&]() -> Error {
    return Error(ErrorKind::InvalidArgument,
                 "handle " + std::to_string(index) + " of the members is none of this backend", {},
                 kReconfigure, "pass what get_init_handle() returns on each member");
  };
  if (handle.rfind(kHandlePrefix, 0) != 0 || handle.size() % 2 != kHandlePrefix.size() % 2) {
    throw bad();
  }
  std::string bytes;
  for (size_t i = kHandlePrefix.size(); i < handle.size(); i += 2) {
    const size_t high = kDigits.find(handle[i]);
    const size_t low = kDigits.find(handle[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) throw bad();
    bytes += static_cast<char>(high << 4 | low);
  }
  if (bytes.size() != sizeof(LeaderAddress)) throw bad();
  return LeaderAddress::parse(bytes);
}

/// What the hand-over says, of members that have handles and an occasion instead of a store.
/// `strangers`: who has called meanwhile, and was not let in.
Error ofMembers(const Error& error, const std::set<std::string>& strangers) {
  std::string message = error.message();
  if (error.kind() == ErrorKind::Timeout && !strangers.empty()) {
    std::string who;
    for (const std::string& one : strangers) who += (who.empty() ? "" : ", ") + one;
    message += "; " + who + " called for another occasion: uuid or handles differ";
  }
  switch (error.kind()) {
    case ErrorKind::Timeout:
    case ErrorKind::Mismatch:
    case ErrorKind::InvalidArgument:
      return Error(error.kind(), message, error.ranks(), kReconfigure, kMissingHint);
    case ErrorKind::PeerLost:
      return Error(error.kind(), message, error.ranks(), kReconfigure, kLostHint);
    default:
      return Error(error.kind(), message, error.ranks(), kReconfigure, error.hint());
  }
}

/// Tries again while the leader is there and means another occasion, or none yet.
HostGroup joinLeader(const LeaderAddress& leader, int rank, int size, const std::string& host,
                     Leader& own, Deadline deadline, const Interrupt& interrupt) {
  std::string why;
  while (true) {
    NotJoined notJoined;
    try {
      auto group =
          join(leader, rank, size, deadline, interrupt, &notJoined, host, openOwnPidFd(), &own);
      if (group) return std::move(*group);
    } catch (const Error& error) {
      // What it says of another rank stands.
      const bool turnedAway =
          error.kind() == ErrorKind::PeerLost && error.ranks() == std::vector<int>{0};
      if (!turnedAway && !notJoined.somebodyListens) throw;
      if (turnedAway) notJoined = {error.what(), true};
    }
    if (!notJoined.somebodyListens) {
      throw Error(ErrorKind::PeerLost,
                  "rank 0 of the new members has ended" +
                      (notJoined.why.empty() ? "" : ", or cannot be reached: " + notJoined.why),
                  {0}, kReconfigure, kLostHint);
    }
    // How rank 0 turns others away says more than that it has gone by the deadline.
    if (why.empty() || notJoined.why != kNoAnswer) why = notJoined.why;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorKind::Timeout,
                  "rank " + std::to_string(rank) + " waited for rank 0, which means another " +
                      "occasion, or none: " + why,
                  {0}, kReconfigure, kMissingHint);
    }
    if (interrupt) interrupt();
    std::this_thread::sleep_for(kMemberPause);
  }
}

}  // namespace

InitPoint::InitPoint(const std::string& host)
    : host_(host), leader_(Leader::Reach::AllHosts, host), handle_(written(leader_.address())) {}

std::shared_ptr<Communicator> InitPoint::form(const std::vector<std::string>& handles,
                                              const std::string& occasion,
                                              CommunicatorOptions options, WaitHooks* hooks) {
  const auto reject = [](const std::string& why) -> void {
    throw Error(ErrorKind::InvalidArgument, why, {}, kReconfigure);
  };
  const auto self = std::find(handles.begin(), handles.end(), handle_);
  if (self == handles.end()) reject("this process' own handle is not among those of the members");
  if (std::set<std::string>(handles.begin(), handles.end()).size() != handles.size()) {
    reject("a handle appears multiple times among those of the members");
  }
  if (handles.size() > kMaxRanks) {
    reject("a communicator has at most " + std::to_string(kMaxRanks) + " ranks");
  }
  std::vector<LeaderAddress> addresses;
  for (size_t i = 0; i < handles.size(); ++i) addresses.push_back(readHandle(handles[i], i));

  options.rank = static_cast<int>(self - handles.begin());
  options.size = static_cast<int>(handles.size());
  const Deadline deadline = deadlineAfter(options.timeout);
  const Interrupt interrupt = interruptOf(hooks);
  const bool inTree = options.size > BootstrapTree::kMostInOneLevel;
  LeaderAddress above =
      addresses[inTree && options.rank > 0 ? BootstrapTree::parentOf(options.rank) : 0];
  above.key = addresses[0].forOccasion(occasion).key;
  leader_.watch([addresses, this](int rank) { return addresses[rank].isDeserted(host_); });
  const BootstrapTree tree{options.rank, options.size};
  const bool hears = options.rank == 0 || (inTree && tree.children() > 0);
  if (!hears) leader_.dismiss();  // those who have given up; others call again
  leader_.takeStrangers();
  HostGroup group;
  try {
    const Blocking blocking(hooks);
    group = options.rank == 0 ? leader_.gather(options.size, memoryFor(options.size), deadline,
                                               interrupt, openOwnPidFd(), occasion)
                              : joinLeader(above, options.rank, options.size, host_, leader_,
                                           deadline, interrupt);
  } catch (const Error& error) {
    if (error.op() != hand_over::kOp && error.op() != kReconfigure) throw;
    // Callers take a rank that hears nobody for another one, so they are turned away.
    if (!hears) leader_.dismiss();
    throw ofMembers(error, leader_.takeStrangers());
  }
  return makeCommunicator(options, std::move(group), deadline, hooks);
}

}  // namespace ctran
