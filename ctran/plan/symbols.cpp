#include "ctran/plan/symbols.h"

#include <algorithm>

namespace ctran::plan {
namespace {

/// More than any right value is made of: a wrong one may double with each step.
constexpr size_t kMostLeaves = size_t{1} << 16;

}  // namespace

Symbols::Id Symbols::input(int execution, int rank, int chunk) {
  const Leaf leaf{execution, rank, chunk};
  const auto [at, added] = inputs_.try_emplace(leaf, static_cast<Id>(nodes_.size()));
  if (added) nodes_.push_back({{}, {at->second}, leaf});
  return at->second;
}

Symbols::Id Symbols::reduction(const std::vector<Id>& parts) {
  if (parts.size() == 1) return parts[0];
  const auto [at, added] = reductions_.try_emplace(parts, static_cast<Id>(nodes_.size()));
  if (added) {
    Node node{parts, {}, {}};
    for (const Id part : parts) {
      const auto& leaves = nodes_[part].leaves;
      node.leaves.insert(node.leaves.end(), leaves.begin(), leaves.end());
    }
    std::sort(node.leaves.begin(), node.leaves.end());
    if (node.leaves.size() > kMostLeaves) node.leaves.resize(kMostLeaves);
    nodes_.push_back(std::move(node));
  }
  return at->second;
}

bool Symbols::isFlat(Id id) const {
  for (const Id part : nodes_[id].parts) {
    if (!nodes_[part].parts.empty()) return false;
  }
  return true;
}

bool Symbols::collectLeftFold(Id id, std::vector<Id>& order) const {
  const Node& node = nodes_[id];
  if (node.parts.empty()) {
    order.push_back(id);
    return true;
  }
  if (!collectLeftFold(node.parts[0], order)) return false;
  for (size_t i = 1; i < node.parts.size(); ++i) {
    if (!nodes_[node.parts[i]].parts.empty()) return false;
    order.push_back(node.parts[i]);
  }
  return true;
}

bool Symbols::isInRankOrder(Id id) const {
  std::vector<Id> order;
  return collectLeftFold(id, order) &&
         std::adjacent_find(order.begin(), order.end(), [this](Id a, Id b) {
           return leaf(a).rank >= leaf(b).rank;
         }) == order.end();
}

std::string Symbols::toText(Id id) const {
  if (id == kNothing) return "nothing";
  const Node& node = nodes_[id];
  if (node.parts.empty()) {
    return std::to_string(node.leaf.rank) + "[" + std::to_string(node.leaf.chunk) + "]";
  }
  std::string text;
  for (const Id part : node.parts) {
    if (text.size() > 200) return text + " + ...";
    const bool nested = !nodes_[part].parts.empty();
    text += (text.empty() ? "" : " + ") + (nested ? "(" + toText(part) + ")" : toText(part));
  }
  return text;
}

}  // namespace ctran::plan
