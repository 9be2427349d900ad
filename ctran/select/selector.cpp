#include "ctran/select/selector.h"

#include <cstdio>

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

void Selector::prefer(Preferences hint, Preferences user) {
  hint_ = std::move(hint);
  user_ = std::move(user);
  forget();
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

std::string Selector::whyNot(const ShmChoice& choice, size_t bytes) const {
  if (choice.reads && !whyNotReading_.empty()) return whyNotReading_;
  return choice.whyNot(bytes, size_);
}

std::vector<std::string> Selector::candidates(CollectiveKind kind, size_t bytes) const {
  std::vector<std::string> names;
  for (const ShmChoice& choice : shmChoices(kind)) {
    if (whyNot(choice, bytes).empty()) names.emplace_back(choice.name);
  }
  return names;
}

void Selector::force(CollectiveKind kind, std::string_view name) {
  forced_ = nullptr;
  for (const ShmChoice& choice : shmChoices(kind)) {
    if (choice.name == name) forced_ = &choice;
  }
  forget();
}

const ShmChoice& Selector::choose(const Collective& c) {
  if (size_ == 1) return shmAlone();
  const size_t bytes = contributionBytes(c, size_);
  const auto kind = static_cast<size_t>(c.kind);
  const uint64_t hints = c.hints ? c.hints->hash : 0;
  const uint64_t place = (bytes * 0x9e3779b97f4a7c15 >> 40) ^ kind ^ hints;
  Decision& known = decisions_[place % decisions_.size()];
  if (known.choice == nullptr || known.kind != c.kind || known.bytes != bytes ||
      known.hints != hints) {
    known = {decide(c.kind, bytes, c.hints.get(), nullptr), c.kind, bytes, hints};
  }
  return *known.choice;
}

const ShmChoice* Selector::decide(CollectiveKind kind, size_t bytes, const CallHints* hints,
                                  std::string* why) const {
  const auto choices = shmChoices(kind);
  const auto named = [&](std::string_view name) -> const ShmChoice* {
    for (const ShmChoice& choice : choices) {
      if (choice.name == name && whyNot(choice, bytes).empty()) return &choice;
    }
    return nullptr;
  };
  const auto because = [&](const ShmChoice* choice, const std::string& reason) {
    if (why != nullptr) *why = reason;
    return choice;
  };
  if (forced_ != nullptr && forced_->kind == kind && whyNot(*forced_, bytes).empty()) {
    return because(forced_, kBeingMeasured);
  }
  for (const Preferences* wanted : hintsOf(hints, hint_)) {
    if (wanted == nullptr) continue;
    for (const std::string_view name : wanted->namesFor(kind)) {
      if (const auto* choice = named(name)) return because(choice, kByHint);
    }
  }
  for (const std::string_view name : user_.namesFor(kind)) {
    if (const auto* choice = named(name)) return because(choice, kByUser);
  }
  if (const TuningTable::Entry* entry = table_.find(kind, bytes)) {
    for (const auto& [name, us] : entry->micros) {
      if (const auto* choice = named(name)) {
        return because(choice, whyMeasured(entry->bytes, us));
      }
    }
  }
  double least = 0;
  const ShmChoice* best = &cheapestShm(kind, bytes, size_, readingPays_, &least);
  return because(best, whyPredicted(least));
}

Explanation Selector::explain(CollectiveKind kind, size_t bytes, const CallHints* hints) const {
  Explanation explanation;
  const ShmChoice* choice = size_ == 1 ? &shmAlone() : decide(kind, bytes, hints, &explanation.why);
  if (size_ == 1) explanation.why = "there is one rank";
  explanation.algorithm = choice->name;
  if (size_ == 1) return explanation;
  const TuningTable::Entry* entry = table_.find(kind, bytes);
  for (const ShmChoice& one : shmChoices(kind)) {
    Explanation::Alternative alternative;
    alternative.algorithm = one.name;
    alternative.whyNot = whyNot(one, bytes);
    alternative.predicted = one.micros(kind, bytes, size_);
    if (entry != nullptr) {
      for (const auto& [name, us] : entry->micros) {
        if (name == one.name) alternative.measured = us;
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
  return json;
}

}  // namespace ctran
