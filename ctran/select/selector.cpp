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

Preferences::Preferences(const std::string& text, const std::string& source)
    : text_(text), wanted_(parseAlgorithms(text, source)) {}

const std::string* Preferences::of(CollectiveKind kind) const {
  const std::string* general = nullptr;
  const std::string* own = nullptr;
  for (const auto& [one, name] : wanted_) {
    if (!one) general = &name;
    if (one == kind) own = &name;
  }
  return own != nullptr ? own : general;
}

Preferences userPreferences() { return {wantedAlgorithms(), "CTRAN_ALGORITHM"}; }

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

void Selector::force(const ShmChoice* choice) {
  forced_ = choice;
  forget();
}

const ShmChoice& Selector::choose(const Collective& c) {
  if (size_ == 1) return shmAlone();
  const size_t bytes = contributionBytes(c, size_);
  const auto kind = static_cast<size_t>(c.kind);
  Decision& known = decisions_[(bytes * 0x9e3779b97f4a7c15 >> 40 ^ kind) % decisions_.size()];
  if (known.choice == nullptr || known.kind != c.kind || known.bytes != bytes) {
    known = {decide(c.kind, bytes, nullptr), c.kind, bytes};
  }
  return *known.choice;
}

const ShmChoice* Selector::decide(CollectiveKind kind, size_t bytes, std::string* why) const {
  const auto choices = shmChoices(kind);
  const auto named = [&](const std::string& name) -> const ShmChoice* {
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
    return because(forced_, "being measured");
  }
  if (const std::string* name = hint_.of(kind)) {
    if (const auto* choice = named(*name)) return because(choice, "the hint ctran::algorithm");
  }
  if (const std::string* name = user_.of(kind)) {
    if (const auto* choice = named(*name)) return because(choice, "CTRAN_ALGORITHM");
  }
  if (const TuningTable::Entry* entry = table_.find(kind, bytes)) {
    for (const auto& [name, us] : entry->micros) {
      if (const auto* choice = named(name)) {
        return because(choice, "the fastest at " + std::to_string(entry->bytes) +
                                   " bytes when this machine was tuned, " + inMicros(us));
      }
    }
  }
  double least = 0;
  const ShmChoice* best = &cheapestShm(kind, bytes, size_, readingPays_, &least);
  return because(best, "the fastest by the cost model, " + inMicros(least));
}

Explanation Selector::explain(CollectiveKind kind, size_t bytes) const {
  Explanation explanation;
  const ShmChoice* choice = size_ == 1 ? &shmAlone() : decide(kind, bytes, &explanation.why);
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
