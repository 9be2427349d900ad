#include "ctran/select/hosts_selector.h"

#include <cstring>
#include <span>

#include "ctran/base/error.h"
#include "ctran/base/sha256.h"
#include "ctran/collective/shm_algorithms.h"

namespace ctran {

HostsSelector::HostsSelector(const HostMap& map, const std::map<std::string, std::string>& hints)
    : map_(map),
      hint_(hintedPreferences(hints)),
      user_(userPreferences()),
      inRankOrder_(wantsRankOrder(hints)) {
  for (size_t k = 0; k < kKinds; ++k) {
    choices_[k] = hostsChoices(static_cast<CollectiveKind>(k), map_);
  }
}

uint64_t HostsSelector::hash() const {
  const std::string text = hint_.text() + ";" + user_.text() + (inRankOrder_ ? ";rank_order" : "");
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

std::vector<std::string> HostsSelector::candidates(CollectiveKind kind, size_t bytes) const {
  std::vector<std::string> names;
  for (const HostsChoice& choice : choicesFor(kind)) {
    if (whyNot(choice, callOf(kind, bytes, true, nullptr), false).empty())
      names.emplace_back(choice.name);
  }
  return names;
}

void HostsSelector::force(CollectiveKind kind, std::string_view name) {
  forced_ = nullptr;
  forcedKind_ = kind;
  for (const HostsChoice& choice : choicesFor(kind)) {
    if (choice.name == name) forced_ = &choice;
  }
  forget();
}

void HostsSelector::use(TuningTable table) {
  table_ = std::move(table);
  forget();
}

HostsSelector::Call HostsSelector::callOf(CollectiveKind kind, size_t bytes, bool partialSums,
                                          const CallHints* hints) const {
  if (hints == nullptr) return {kind, bytes, partialSums, 0, inRankOrder_};
  const bool inRankOrder = hints->inRankOrder || (inRankOrder_ && !hints->alone);
  return {kind, bytes, partialSums, hints->hash, inRankOrder};
}

const HostsChoice& HostsSelector::choose(const Collective& c) {
  const CallHints* hints = c.hints.get();
  const Call call =
      callOf(c.kind, contributionBytes(c, map_.size()), toleratesPartialSums(c), hints);
  const auto kind = static_cast<size_t>(c.kind) << 1 | (call.partialSums ? 1 : 0);
  const uint64_t place = (call.bytes * 0x9e3779b97f4a7c15 >> 40) ^ kind ^ call.hints;
  Decision& known = decisions_[place % decisions_.size()];
  if (known.choice == nullptr || known.call != call) known = {decide(call, hints, nullptr), call};
  return *known.choice;
}

std::string HostsSelector::whyNot(const HostsChoice& choice, const Call& call, bool named) const {
  if (!choice.whyNot.empty()) return choice.whyNot;
  if (!choice.sumsPartially) return {};
  if (call.inRankOrder) return "the hint ctran::deterministic asks for the order of the ranks";
  if (call.partialSums || named) return {};
  return "its partial sums would be rounded to few digits; name it to have it all the same";
}

const HostsChoice* HostsSelector::decide(const Call& call, const CallHints* hints,
                                         std::string* why) const {
  const auto& choices = choicesFor(call.kind);
  const auto find = [&](std::string_view name, bool named) -> const HostsChoice* {
    for (const HostsChoice& choice : choices) {
      if (choice.name == name && whyNot(choice, call, named).empty()) return &choice;
    }
    return nullptr;
  };
  const auto because = [&](const HostsChoice* choice, const std::string& reason) {
    if (why != nullptr) *why = reason;
    return choice;
  };
  if (forced_ != nullptr && forcedKind_ == call.kind && whyNot(*forced_, call, false).empty()) {
    return because(forced_, kBeingMeasured);
  }
  for (const Preferences* wanted : hintsOf(hints, hint_)) {
    if (wanted == nullptr) continue;
    for (const std::string_view name : wanted->namesFor(call.kind)) {
      if (const auto* choice = find(name, true)) return because(choice, kByHint);
    }
  }
  for (const std::string_view name : user_.namesFor(call.kind)) {
    if (const auto* choice = find(name, true)) return because(choice, kByUser);
  }
  if (const TuningTable::Entry* entry = table_.find(call.kind, call.bytes)) {
    for (const auto& [name, us] : entry->micros) {
      if (const auto* choice = find(name, false)) {
        return because(choice, whyMeasured(entry->bytes, us));
      }
    }
  }
  const HostsChoice* best = nullptr;
  double least = 0;
  for (const HostsChoice& choice : choices) {
    if (!whyNot(choice, call, false).empty()) continue;
    const double us = microsOf(choice, call.kind, call.bytes, map_, call.partialSums);
    if (best != nullptr && us >= least) continue;
    best = &choice;
    least = us;
  }
  return because(best, whyPredicted(least));
}

Explanation HostsSelector::explain(CollectiveKind kind, size_t bytes, bool partialSums,
                                   const CallHints* hints) const {
  const Call call = callOf(kind, bytes, partialSums, hints);
  Explanation explanation;
  explanation.algorithm = decide(call, hints, &explanation.why)->name;
  const TuningTable::Entry* entry = table_.find(kind, bytes);
  for (const HostsChoice& one : choicesFor(kind)) {
    Explanation::Alternative alternative;
    alternative.algorithm = one.name;
    // What the user has named is no question any more.
    const bool taken = one.name == explanation.algorithm;
    alternative.whyNot = whyNot(one, call, taken);
    alternative.predicted = microsOf(one, kind, bytes, map_, partialSums);
    if (entry != nullptr) {
      for (const auto& [name, us] : entry->micros) {
        if (name == one.name) alternative.measured = us;
      }
    }
    explanation.alternatives.push_back(std::move(alternative));
  }
  return explanation;
}

}  // namespace ctran
