#include "ctran/select/selector.h"

#include <cstdio>
#include <cstring>
#include <span>

#include "ctran/base/sha256.h"
#include "ctran/collective/alone.h"

namespace ctran {
namespace {

std::string inMicros(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g µs", us);
  return text;
}

}  // namespace

std::string whyMeasured(size_t bytes, double us) {
  return "the fastest at " + std::to_string(bytes) + " bytes when this machine was tuned, " +
         inMicros(us);
}

std::string whyPredicted(double us) { return "the fastest by the cost model, " + inMicros(us); }

Selector::Selector(int size) : size_(size) { find(AlgorithmPlace::SharedMemory); }

Selector::Selector(const HostMap& map) : size_(map.size()), map_(map) {
  if (map.isShared()) find(AlgorithmPlace::Hosts);
  find(AlgorithmPlace::Network);
}

void Selector::find(AlgorithmPlace place) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const auto found = algorithmsOf(place, static_cast<CollectiveKind>(kind));
    algorithms_[kind].insert(algorithms_[kind].end(), found.begin(), found.end());
  }
}

const Selector::Algorithms& Selector::algorithmsFor(CollectiveKind kind) const {
  static const Algorithms none;
  const auto k = static_cast<size_t>(kind);
  return k < kKinds ? algorithms_[k] : none;
}

void Selector::prefer(Preferences hint, Preferences user, bool inRankOrder) {
  hint_ = std::move(hint);
  user_ = std::move(user);
  inRankOrder_ = inRankOrder;
  forget();
}

void Selector::prefer(const std::map<std::string, std::string>& hints) {
  prefer(hintedPreferences(hints), userPreferences(), wantsRankOrder(hints));
}

uint64_t Selector::hash() const {
  const std::string text = hint_.text() + ";" + user_.text() + (inRankOrder_ ? ";rank_order" : "");
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

void Selector::use(TuningTable table) {
  table_ = std::move(table);
  forget();
}

void Selector::useReading(std::string whyNot, bool pays) {
  readingPays_ = pays && whyNot.empty();
  whyNotReading_ = std::move(whyNot);
  forget();
}

AlgorithmQuery Selector::queryOf(const Call& call) const {
  AlgorithmQuery query{call.kind, call.bytes, size_};
  query.partialSums = call.partialSums;
  if (map_) {
    query.map = &*map_;
    query.sharing = (size_ + map_->hosts() - 1) / map_->hosts();
  }
  return query;
}

Selector::Call Selector::callOf(CollectiveKind kind, size_t bytes, bool partialSums,
                                const CallHints* hints) const {
  if (hints == nullptr) return {kind, bytes, partialSums, inRankOrder_, 0};
  const bool inRankOrder = hints->inRankOrder || (inRankOrder_ && !hints->alone);
  return {kind, bytes, partialSums, inRankOrder, hints->hash};
}

std::string Selector::whyNot(const Algorithm& algorithm, const Call& call, bool named) const {
  if (algorithm.readsPeers && !whyNotReading_.empty()) return whyNotReading_;
  if (std::string why = algorithm.whyNot(queryOf(call)); !why.empty()) return why;
  if (!algorithm.sumsPartially) return {};
  if (call.inRankOrder) return "the hint ctran::deterministic asks for the order of the ranks";
  if (call.partialSums || named) return {};
  return "its partial sums would be rounded to few digits; name it to have it all the same";
}

std::vector<std::string> Selector::candidates(CollectiveKind kind, size_t bytes) const {
  std::vector<std::string> names;
  const Call call = callOf(kind, bytes, true, nullptr);
  for (const Algorithm* algorithm : algorithmsFor(kind)) {
    if (whyNot(*algorithm, call, false).empty()) names.emplace_back(algorithm->name);
  }
  return names;
}

void Selector::force(CollectiveKind kind, std::string_view name) {
  forced_ = nullptr;
  forcedKind_ = kind;
  for (const Algorithm* algorithm : algorithmsFor(kind)) {
    if (algorithm->name == name) forced_ = algorithm;
  }
  forget();
}

const Algorithm& Selector::choose(const Collective& c) {
  if (size_ == 1) return aloneAlgorithm();
  const CallHints* const hints = c.hints.get();
  const bool partialSums = !map_ || toleratesPartialSums(c);  // on one host there are none
  const Call call = callOf(c.kind, contributionBytes(c, size_), partialSums, hints);
  const size_t kind = static_cast<size_t>(c.kind) << 1 | (partialSums ? 1 : 0);
  const uint64_t place = (call.bytes * 0x9e3779b97f4a7c15 >> 40) ^ kind ^ call.hints;
  Decision& known = decisions_[place % decisions_.size()];
  if (known.algorithm == nullptr || known.call != call) {
    known = {decide(call, hints, nullptr), call};
  }
  return *known.algorithm;
}

const Algorithm* Selector::decide(const Call& call, const CallHints* hints,
                                  std::string* why) const {
  const Algorithms& algorithms = algorithmsFor(call.kind);
  const auto find = [&](std::string_view name, bool named) -> const Algorithm* {
    for (const Algorithm* algorithm : algorithms) {
      if (algorithm->name == name && whyNot(*algorithm, call, named).empty()) return algorithm;
    }
    return nullptr;
  };
  const auto because = [&](const Algorithm* algorithm, const std::string& reason) {
    if (why != nullptr) *why = reason;
    return algorithm;
  };
  if (forced_ != nullptr && forcedKind_ == call.kind && whyNot(*forced_, call, false).empty()) {
    return because(forced_, kBeingMeasured);
  }
  for (const Preferences* wanted : hintsOf(hints, hint_)) {
    if (wanted == nullptr) continue;
    for (const std::string_view name : wanted->namesFor(call.kind)) {
      if (const auto* algorithm = find(name, true)) return because(algorithm, kByHint);
    }
  }
  for (const std::string_view name : user_.namesFor(call.kind)) {
    if (const auto* algorithm = find(name, true)) return because(algorithm, kByUser);
  }
  if (const TuningTable::Entry* entry = table_.find(call.kind, call.bytes)) {
    for (const auto& [name, us] : entry->micros) {
      if (const auto* algorithm = find(name, false)) {
        return because(algorithm, whyMeasured(entry->bytes, us));
      }
    }
  }
  const Algorithm* best = nullptr;
  double least = 0;
  for (const Algorithm* algorithm : algorithms) {
    if (algorithm->readsPeers && !readingPays_) continue;
    if (!whyNot(*algorithm, call, false).empty()) continue;
    const double us = algorithm->micros(queryOf(call));
    if (best != nullptr && us >= least) continue;
    best = algorithm;
    least = us;
  }
  return because(best, whyPredicted(least));
}

Explanation Selector::explain(CollectiveKind kind, size_t bytes, bool partialSums,
                              const CallHints* hints) const {
  Explanation explanation;
  if (size_ == 1) {
    explanation.algorithm = aloneAlgorithm().name;
    explanation.why = "there is one rank";
    return explanation;
  }
  const Call call = callOf(kind, bytes, partialSums, hints);
  explanation.algorithm = decide(call, hints, &explanation.why)->name;
  const TuningTable::Entry* entry = table_.find(kind, bytes);
  for (const Algorithm* one : algorithmsFor(kind)) {
    Explanation::Alternative alternative;
    alternative.algorithm = one->name;
    // What the user has named is no question any more.
    alternative.whyNot = whyNot(*one, call, one->name == explanation.algorithm);
    alternative.predicted = one->micros(queryOf(call));
    if (entry != nullptr) {
      for (const auto& [name, us] : entry->micros) {
        if (name == one->name) alternative.measured = us;
      }
    }
    explanation.alternatives.push_back(std::move(alternative));
  }
  return explanation;
}

Json Explanation::toJson() const {
  Json all = Json::array();
  for (const Alternative& one : alternatives) {
    Json entry = Json::object();
    entry.set("algorithm", Json(one.algorithm)).set("predicted_us", Json(one.predicted));
    entry.set("measured_us", one.measured ? Json(*one.measured) : Json());
    entry.set("why_not", Json(one.whyNot));
    all.push(std::move(entry));
  }
  Json json = Json::object();
  json.set("algorithm", Json(algorithm)).set("why", Json(why));
  json.set("alternatives", std::move(all));
  if (!network.empty()) {
    Json paths = Json::array();
    for (const std::string& path : network) paths.push(Json(path));
    json.set("network", std::move(paths));
  }
  return json;
}

}  // namespace ctran
