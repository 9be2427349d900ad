#include "ctran/collective/preference.h"

#include <cstring>
#include <span>
#include <sstream>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/sha256.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

const ConfigString kAlgorithm{
    "CTRAN_ALGORITHM", "",
    "The algorithms of collectives between hosts, as the hint ctran::algorithm: a name (ring), "
    "or names for single collectives (all_reduce:ring,all_gather:bruck). The same on all ranks."};

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::Barrier,       CollectiveKind::Broadcast,      CollectiveKind::AllReduce,
    CollectiveKind::Reduce,        CollectiveKind::AllGather,      CollectiveKind::AllGatherV,
    CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV, CollectiveKind::Scatter,
    CollectiveKind::Gather,        CollectiveKind::AllToAll,       CollectiveKind::AllToAllV};

bool isKnown(const std::string& name) {
  for (const CollectiveKind kind : kKinds) {
    if (hasTcpAlgorithm(kind, name)) return true;
  }
  return name == kGroup;
}

}  // namespace

HostsPreference HostsPreference::of(const std::map<std::string, std::string>& hints) {
  HostsPreference preference;
  const auto hint = hints.find("ctran::algorithm");
  if (hint != hints.end()) {
    preference.parse(hint->second, "the hint ctran::algorithm");
  } else {
    preference.parse(kAlgorithm.get(), "CTRAN_ALGORITHM");
  }
  if (const auto order = hints.find("ctran::deterministic"); order != hints.end()) {
    if (order->second != "rank_order") {
      throw Error(ErrorKind::InvalidArgument,
                  "the hint ctran::deterministic is '" + order->second + "'; it can be rank_order");
    }
    preference.inRankOrder_ = true;
  }
  return preference;
}

void HostsPreference::parse(const std::string& text, const std::string& where) {
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t colon = word.find(':');
    const std::string name = colon == std::string::npos ? word : word.substr(colon + 1);
    if (colon == std::string::npos) {
      if (!isKnown(name)) {
        throw Error(ErrorKind::InvalidArgument, where + " names '" + name +
                                                    "', which no collective between hosts has; " +
                                                    "there are: group, " + tcpAlgorithmNames());
      }
      any_ = name;
      continue;
    }
    const auto kind = collectiveKindNamed(word.substr(0, colon));
    if (!kind) {
      throw Error(ErrorKind::InvalidArgument,
                  where + " names the collective '" + word.substr(0, colon) + "', which is none");
    }
    if (name != kGroup && !hasTcpAlgorithm(*kind, name)) {
      throw Error(ErrorKind::InvalidArgument,
                  where + " names '" + name + "', which " + std::string(nameOf(*kind)) +
                      " between hosts has not; there are: group, " + tcpAlgorithmNames(&*kind));
    }
    named_[*kind] = name;
  }
}

const std::string& HostsPreference::algorithm(CollectiveKind kind) const {
  static const std::string none;
  const auto own = named_.find(kind);
  if (own != named_.end()) return own->second;
  return any_ == kGroup || hasTcpAlgorithm(kind, any_) ? any_ : none;
}

uint64_t HostsPreference::hash() const {
  std::string text = any_;
  for (const auto& [kind, name] : named_) text += "," + std::string(nameOf(kind)) + ":" + name;
  if (inRankOrder_) text += "/rank_order";
  if (text.empty()) return 0;
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

}  // namespace ctran
