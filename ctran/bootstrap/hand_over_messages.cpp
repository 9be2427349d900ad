#include "ctran/bootstrap/hand_over_messages.h"

#include <bit>

#include "ctran/base/rank_list.h"
#include "ctran/os/process.h"

namespace ctran::hand_over {

Place placeAt(const std::string& host, const std::vector<NetAddress>& addresses) {
  Place place;
  copyText(place.host, host);
  copyText(place.process, processName());
  std::copy_n(addresses.begin(), std::min(addresses.size(), kMaxAddresses),
              place.addresses.begin());
  return place;
}

Error missingError(int waiting, uint64_t missing) {
  std::vector<int> ranks;
  for (; missing != 0; missing &= missing - 1) ranks.push_back(std::countr_zero(missing));
  // There is no room for more bits in an Answer.
  const std::string text = ranks.empty() ? "of 64 and more" : listed(ranks);
  return Error(ErrorKind::Timeout,
               "rank " + std::to_string(waiting) + " waited for rank" +
                   (ranks.size() == 1 ? " " : "s ") + text + ", who did not join",
               ranks, kOp, kMissingHint);
}

Error lostError(int rank, const std::string& who) {
  return Error(ErrorKind::PeerLost, who + " died, or gave up, while others were still joining",
               {rank}, kOp, "see its output for the reason");
}

Error descriptorError(int rank, const std::string& why) {
  return Error(ErrorKind::System,
               "rank " + std::to_string(rank) + " has no descriptor left to join" +
                   (why.empty() ? "" : ": " + why),
               {rank}, kOp, "raise its limit (ulimit -n), or see what it keeps open");
}

bool isForWantOfDescriptors(const Error& error) {
  return error.op() == kMakingSockets || error.op() == kNoDescriptors;
}

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

}  // namespace ctran::hand_over
