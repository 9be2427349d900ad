#include "ctran/collective/preference.h"

#include <cstring>
#include <span>
#include <sstream>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/sha256.h"
#include "ctran/collective/exchange/copy_engine.h"
#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

const ConfigString kAlgorithm{
    "CTRAN_ALGORITHM", "",
    "Algorithms to be preferred, as by the hint ctran::algorithm, which comes first: a name, for "
    "every collective that has one of that name, or COLLECTIVE=NAME, separated by commas. The same "
    "on all ranks."};

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::Barrier,       CollectiveKind::Broadcast,      CollectiveKind::AllReduce,
    CollectiveKind::Reduce,        CollectiveKind::AllGather,      CollectiveKind::AllGatherV,
    CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV, CollectiveKind::Scatter,
    CollectiveKind::Gather,        CollectiveKind::AllToAll,       CollectiveKind::AllToAllV};

bool isOfGpus(CollectiveKind kind, const std::string& name) {
  return name == CopyEngines::kName && CopyEngines::serves(kind);
}

bool isOfHosts(CollectiveKind kind, const std::string& name) {
  return name == kGroup || hasTcpAlgorithm(kind, name);
}

void check(const WantedAlgorithm& wanted, const std::string& source) {
  const auto& [kind, name] = wanted;
  std::string names;
  for (const CollectiveKind one : kKinds) {
    if (kind && *kind != one) continue;
    if (isOfHosts(one, name) || isOfGpus(one, name)) return;
    for (const ShmChoice& choice : shmChoices(one)) {
      const std::string known(choice.name);
      if (known == name) return;
      if ((", " + names + ",").find(", " + known + ",") == std::string::npos) {
        names += (names.empty() ? "" : ", ") + known;
      }
    }
  }
  throw Error(ErrorKind::InvalidArgument,
              source + " names the algorithm '" + name + "', which " +
                  (kind ? std::string(nameOf(*kind)) + " does not have" : "no collective has") +
                  "; on one host there are: " + names + "; between hosts: group, " +
                  tcpAlgorithmNames(kind ? &*kind : nullptr) +
                  "; on GPUs copy_engine, of all_gather, all_to_all and broadcast");
}

}  // namespace

std::string wantedAlgorithms() { return kAlgorithm.get(); }

std::vector<WantedAlgorithm> parseAlgorithms(const std::string& text, const std::string& source) {
  std::vector<WantedAlgorithm> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    WantedAlgorithm wanted;
    wanted.name = equals == std::string::npos ? word : word.substr(equals + 1);
    if (equals != std::string::npos) {
      wanted.kind = collectiveKindNamed(word.substr(0, equals));
      if (!wanted.kind) {
        throw Error(ErrorKind::InvalidArgument, source + " names the collective '" +
                                                    word.substr(0, equals) + "', which is none");
      }
    }
    check(wanted, source);
    all.push_back(std::move(wanted));
  }
  return all;
}

HostsPreference HostsPreference::of(const std::map<std::string, std::string>& hints) {
  HostsPreference preference;
  const auto hint = hints.find("ctran::algorithm");
  if (hint != hints.end()) {
    preference.take(hint->second, "the hint ctran::algorithm");
  } else {
    preference.take(wantedAlgorithms(), "CTRAN_ALGORITHM");
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

void HostsPreference::take(const std::string& text, const std::string& source) {
  for (const auto& [kind, name] : parseAlgorithms(text, source)) {
    if (!kind) {
      any_ = name;
    } else if (isOfHosts(*kind, name)) {
      named_[*kind] = name;
    }
  }
}

const std::string& HostsPreference::algorithm(CollectiveKind kind) const {
  static const std::string none;
  const auto own = named_.find(kind);
  if (own != named_.end()) return own->second;
  return isOfHosts(kind, any_) ? any_ : none;
}

uint64_t HostsPreference::hash() const {
  std::string text = any_;
  for (const auto& [kind, name] : named_) text += "," + std::string(nameOf(kind)) + "=" + name;
  if (inRankOrder_) text += "/rank_order";
  if (text.empty()) return 0;
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

}  // namespace ctran
