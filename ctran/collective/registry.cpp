#include "ctran/collective/registry.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ctran/base/error.h"

namespace ctran {

/// Every algorithm, ordered by the paths of their files. Generated, see cmake/Algorithms.cmake.
std::vector<Algorithm> everyAlgorithm();

namespace {

constexpr size_t kPlaces = 5;

struct AlgorithmRegistry {
  AlgorithmRegistry() : all(everyAlgorithm()) {
    // Among algorithms of the same cost the first is chosen: one that rounds once.
    for (const bool sumsPartially : {false, true}) {
      for (const Algorithm& algorithm : all) {
        if (algorithm.sumsPartially == sumsPartially) add(algorithm);
      }
    }
  }
  void add(const Algorithm& algorithm) {
    for (size_t kind = 0; kind < kCollectiveKinds; ++kind) {
      if (!algorithm.kinds.has(static_cast<CollectiveKind>(kind))) continue;
      byKind[static_cast<size_t>(algorithm.place())][kind].push_back(&algorithm);
    }
  }
  const std::vector<Algorithm> all;
  std::array<std::array<std::vector<const Algorithm*>, kCollectiveKinds>, kPlaces> byKind;
};

const AlgorithmRegistry& algorithmRegistry() {
  static const AlgorithmRegistry all;
  return all;
}

}  // namespace

std::span<const Algorithm* const> algorithmsOf(AlgorithmPlace place, CollectiveKind kind) {
  return algorithmRegistry().byKind[static_cast<size_t>(place)][static_cast<size_t>(kind)];
}

const Algorithm* findAlgorithm(AlgorithmPlace place, CollectiveKind kind, std::string_view name) {
  for (const Algorithm* algorithm : algorithmsOf(place, kind)) {
    if (algorithm->name == name) return algorithm;
  }
  return nullptr;
}

bool isAlgorithm(AlgorithmPlace place, std::string_view name) {
  const auto& all = algorithmRegistry().all;
  return std::any_of(all.begin(), all.end(), [&](const Algorithm& one) {
    return one.place() == place && one.name == name;
  });
}

std::string SizeRange::text() const {
  const bool ends = upTo != std::numeric_limits<size_t>::max();
  if (from == 0) return ends ? "up to " + std::to_string(upTo) + " bytes" : "any size";
  std::string text = "from " + std::to_string(from);
  if (ends) text += " up to " + std::to_string(upTo);
  return text + " bytes";
}

const Algorithm& cheapestAlgorithm(AlgorithmPlace place, const AlgorithmQuery& query,
                                   bool readsPeers, double* micros) {
  const Algorithm* best = nullptr;
  double least = 0;
  for (const Algorithm* algorithm : algorithmsOf(place, query.kind)) {
    if (algorithm->readsPeers && !readsPeers) continue;
    if (algorithm->sumsPartially && !query.partialSums) continue;
    if (!algorithm->whyNot(query).empty()) continue;
    const double us = algorithm->micros(query);
    if (best != nullptr && us >= least) continue;
    best = algorithm;
    least = us;
  }
  if (best == nullptr) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(nameOf(query.kind)) + " is not a collective");
  }
  if (micros != nullptr) *micros = least;
  return *best;
}

std::string algorithmNames(AlgorithmPlace place, const CollectiveKind* kind) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : algorithmRegistry().all) {
    if (algorithm.place() != place) continue;
    if (kind != nullptr && !algorithm.kinds.has(*kind)) continue;
    if (std::find(names.begin(), names.end(), algorithm.name) == names.end()) {
      names.push_back(algorithm.name);
    }
  }
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace ctran
