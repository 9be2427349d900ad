#include "ctran/collective/preference.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/collective/registry.h"

namespace ctran {
namespace {

const ConfigString kAlgorithm{
    "CTRAN_ALGORITHM", "",
    "Algorithms to be preferred, as by the hint ctran::algorithm, which comes first: a name, for "
    "every collective that has one of that name, or COLLECTIVE=NAME, separated by commas. The same "
    "on all ranks."};

constexpr CollectiveKind kKindsOfAlgorithms[] = {
    CollectiveKind::Barrier,       CollectiveKind::Broadcast,      CollectiveKind::AllReduce,
    CollectiveKind::Reduce,        CollectiveKind::AllGather,      CollectiveKind::AllGatherV,
    CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV, CollectiveKind::Scatter,
    CollectiveKind::Gather,        CollectiveKind::AllToAll,       CollectiveKind::AllToAllV};

bool isKnown(const WantedAlgorithm& wanted, std::initializer_list<AlgorithmPlace> places) {
  if (wanted.name.starts_with("plan:")) return true;  // one that may be registered later
  for (const CollectiveKind kind : kKindsOfAlgorithms) {
    if (wanted.kind && *wanted.kind != kind) continue;
    for (const AlgorithmPlace place : places) {
      if (findAlgorithm(place, kind, wanted.name) != nullptr) return true;
    }
  }
  return false;
}

bool isKnown(const WantedAlgorithm& wanted) {
  return isKnown(wanted, {AlgorithmPlace::SharedMemory, AlgorithmPlace::Hosts,
                          AlgorithmPlace::Network, AlgorithmPlace::Gpus, AlgorithmPlace::GpuHosts});
}

[[noreturn]] void refuseName(const WantedAlgorithm& wanted, const std::string& source) {
  const auto& [kind, name] = wanted;
  const CollectiveKind* const one = kind ? &*kind : nullptr;
  const std::string what = source + " names the algorithm '" + name + "', which ";
  if (kind && std::ranges::find(kKindsOfAlgorithms, *kind) == std::end(kKindsOfAlgorithms)) {
    throw Error(ErrorKind::InvalidArgument,
                what + std::string(nameOf(*kind)) + " does not have: there is nothing to choose");
  }
  throw Error(ErrorKind::InvalidArgument,
              what + (kind ? std::string(nameOf(*kind)) + " does not have" : "no collective has") +
                  "; on one host there are: " + algorithmNames(AlgorithmPlace::SharedMemory, one) +
                  "; between hosts: " + algorithmNames(AlgorithmPlace::Hosts, one) + ", " +
                  algorithmNames(AlgorithmPlace::Network, one) +
                  "; on GPUs: " + algorithmNames(AlgorithmPlace::Gpus, one) +
                  "; on GPUs of several hosts: " + algorithmNames(AlgorithmPlace::GpuHosts, one));
}

/// Names that other libraries have for algorithms of ours, in lower case. One may be of several,
/// each of other collectives.
struct Alias {
  std::string_view alias;
  std::string_view name;
};
constexpr Alias kAliases[] = {{"arg", kGroup},
                              {"binomial_tree", "binomial"},
                              {"brucksff", "bruck"},
                              {"recdbl", "recursive_doubling"},
                              {"rhd", "halving_doubling"},
                              {"rhd", "recursive_halving"}};

std::vector<std::string> namesMeantBy(const std::string& word) {
  std::string lower = word;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::vector<std::string> names;
  for (const Alias& one : kAliases) {
    if (one.alias == lower) names.emplace_back(one.name);
  }
  if (names.empty()) names.push_back(word);
  return names;
}

}  // namespace

std::string wantedAlgorithms() { return kAlgorithm.get(); }

std::vector<WantedAlgorithm> parseAlgorithms(const std::string& text, const std::string& source) {
  std::vector<WantedAlgorithm> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    WantedAlgorithm wanted;
    const std::string name = equals == std::string::npos ? word : word.substr(equals + 1);
    if (equals != std::string::npos) {
      wanted.kind = collectiveKindNamed(word.substr(0, equals));
      if (!wanted.kind) {
        throw Error(ErrorKind::InvalidArgument, source + " names the collective '" +
                                                    word.substr(0, equals) + "', which is none");
      }
    }
    const size_t before = all.size();
    for (const std::string& meant : namesMeantBy(name)) {
      wanted.name = meant;
      if (isKnown(wanted)) all.push_back(wanted);
    }
    wanted.name = name;
    if (all.size() == before) refuseName(wanted, source);
  }
  return all;
}

Preferences::Preferences(const std::string& text, const std::string& source)
    : text_(text), source_(source), wanted_(parseAlgorithms(text, source)) {}

bool Preferences::names(CollectiveKind kind, std::string_view name) const {
  return std::any_of(wanted_.begin(), wanted_.end(), [&](const WantedAlgorithm& wanted) {
    return wanted.kind == kind && wanted.name == name;
  });
}

void Preferences::checkPlaces(std::initializer_list<AlgorithmPlace> places,
                              const char* whose) const {
  for (const WantedAlgorithm& wanted : wanted_) {
    const bool served =
        std::any_of(wanted_.begin(), wanted_.end(), [&](const WantedAlgorithm& one) {
          return one.kind == wanted.kind && isKnown(one, places);
        });
    if (served) continue;
    std::string has;
    for (const AlgorithmPlace place : places) {
      const CollectiveKind* const kind = wanted.kind ? &*wanted.kind : nullptr;
      const std::string names = algorithmNames(place, kind);
      if (!names.empty()) has += (has.empty() ? "" : ", ") + names;
    }
    const std::string op(wanted.kind ? nameOf(*wanted.kind) : "no collective");
    throw Error(ErrorKind::InvalidArgument,
                source_ + " asks for the algorithm '" + wanted.name + "', which " + op + " of " +
                    whose + (wanted.kind ? " does not have" : " has"),
                {}, {}, "there are: " + has);
  }
}

const std::string* Preferences::of(CollectiveKind kind) const {
  const std::string* general = nullptr;
  const std::string* own = nullptr;
  for (const auto& [one, name] : wanted_) {
    if (!one) general = &name;
    if (one == kind) own = &name;
  }
  return own != nullptr ? own : general;
}

std::vector<std::string_view> Preferences::namesFor(CollectiveKind kind) const {
  std::vector<std::string_view> names;
  for (const bool general : {false, true}) {
    for (auto wanted = wanted_.rbegin(); wanted != wanted_.rend(); ++wanted) {
      if (general ? !wanted->kind : wanted->kind == kind) names.push_back(wanted->name);
    }
  }
  return names;
}

Preferences userPreferences() { return {wantedAlgorithms(), kByUser}; }

Preferences hintedPreferences(const std::map<std::string, std::string>& hints) {
  const auto hint = hints.find("ctran::algorithm");
  return {hint == hints.end() ? std::string() : hint->second, kByHint};
}

bool wantsRankOrder(const std::map<std::string, std::string>& hints) {
  const auto order = hints.find("ctran::deterministic");
  if (order == hints.end()) return false;
  if (order->second == "rank_order") return true;
  throw Error(ErrorKind::InvalidArgument,
              "the hint ctran::deterministic is '" + order->second + "'; it can be rank_order");
}

std::array<const Preferences*, 2> hintsOf(const CallHints* call, const Preferences& communicator) {
  if (call == nullptr) return {nullptr, &communicator};
  return {&call->preferences, call->alone ? nullptr : &communicator};
}

std::shared_ptr<const CallHints> callHints(const std::map<std::string, std::string>& hints,
                                           bool alone) {
  auto parsed = std::make_shared<CallHints>();
  std::string text = alone ? "alone" : "";
  for (const auto& [key, value] : hints) {
    if (!key.starts_with("ctran::")) continue;
    if (key != "ctran::algorithm" && key != "ctran::deterministic") {
      throw Error(ErrorKind::InvalidArgument,
                  "a call knows no hint " + key +
                      "; its hints are ctran::algorithm and ctran::deterministic");
    }
    text += ";" + key + "=" + value;
  }
  if (text.empty()) return nullptr;
  parsed->preferences = hintedPreferences(hints);
  parsed->inRankOrder = wantsRankOrder(hints);
  parsed->alone = alone;
  parsed->hash = std::hash<std::string>()(text) | 1;
  return parsed;
}

}  // namespace ctran
