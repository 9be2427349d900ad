// What a leader and those who join it say to each other once the key is proved, and the errors that
// become of it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/bootstrap/hand_over.h"

namespace ctran::hand_over {

/// Changes with the messages below and with the arena's layout. Every version's HostHello starts
/// with its protocol, and every version's Answer with protocol and reply.
inline constexpr uint32_t kProtocol = 0xc7a20005;
inline constexpr int kMaxRanks = 64;
inline constexpr std::chrono::milliseconds kGrace{500};

/// Of a rank of the same host, once it and the leader have proved the key to each other; with the
/// descriptor that it brings.
struct HostHello {
  uint32_t protocol;
  int32_t rank;
  int32_t size;
  int32_t pid;
  uint64_t process;
};

enum class Reply : uint32_t {
  Welcome,
  OtherVersion,
  OtherSize,
  NoSuchRank,
  RankTaken,
  Missing,
  SeveralHosts,  ///< each rank answers with its Place, and gets a Welcome and those of all
  Lost,          ///< a rank that had joined has died
  NoDescriptor,  ///< one has no descriptor left
};

struct Answer {
  uint32_t protocol;
  Reply reply;
  uint64_t detail;  ///< OtherSize: the leader's; Missing: bit per rank that did not come; Lost,
                    ///< NoDescriptor: the rank
};

/// Follows a welcome, with the descriptors. Each rank answers with a Receipt, and gets another
/// welcome when all ranks have got all.
struct Roster {
  int32_t pids[kMaxRanks];
  uint64_t processes[kMaxRanks];
};

enum class Receipt : uint8_t { All, NoDescriptor };

static_assert(std::is_trivially_copyable_v<LeaderAddress>);
static_assert(std::is_trivially_copyable_v<Place>);

inline constexpr const char* kOp = "new_comm";
inline constexpr const char* kMissingHint =
    "see whether they started, with the same world size, name and store";

template <class T>
std::span<std::byte> bytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

template <size_t n>
void copyText(std::array<char, n>& to, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), n - 1), to.begin());
}

/// Of what came from outside, where nothing says that it ends with a zero.
template <size_t n>
std::string textOf(const std::array<char, n>& text) {
  return {text.data(), ::strnlen(text.data(), n)};
}

Place placeAt(const std::string& host, const std::vector<NetAddress>& addresses);

/// `missing`: a bit per rank.
Error missingError(int waiting, uint64_t missing);
/// `who`: the rank, and its process if that is known.
Error lostError(int rank, const std::string& who);
/// `why`: what the system says, on that rank itself.
Error descriptorError(int rank, const std::string& why = {});
bool isForWantOfDescriptors(const Error& error);
Error sizeError(int rank, int size, int leaderSize);
Error versionError(int rank);

/// What a leader does: see Leader::gather. `doorman`: null without a network.
HostGroup gather(Doorman& local, Doorman* doorman, const LeaderAddress& address, int size,
                 UniqueFd memory, UniqueFd brings, Deadline deadline, const Interrupt& interrupt);

}  // namespace ctran::hand_over
