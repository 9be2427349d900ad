#include "ctran/collective/preference.h"

#include <sstream>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
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

bool wantsRankOrder(const std::map<std::string, std::string>& hints) {
  const auto order = hints.find("ctran::deterministic");
  if (order == hints.end()) return false;
  if (order->second == "rank_order") return true;
  throw Error(ErrorKind::InvalidArgument,
              "the hint ctran::deterministic is '" + order->second + "'; it can be rank_order");
}

}  // namespace ctran
