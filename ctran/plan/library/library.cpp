#include "ctran/plan/library.h"

#include <bit>

#include "ctran/base/error.h"
#include "ctran/plan/library/made.h"

namespace ctran::plan {
namespace {

std::string always(const Recipe&) { return {}; }

std::string powersOfTwo(const Recipe& recipe) {
  if (std::has_single_bit(static_cast<unsigned>(recipe.ranks))) return {};
  return "it needs a power of two of ranks, not " + std::to_string(recipe.ranks);
}

std::string wholeHosts(const Recipe& recipe) {
  if (recipe.ranksPerHost >= 1 && recipe.ranks % recipe.ranksPerHost == 0) return {};
  return "it needs hosts with equally many ranks; " + std::to_string(recipe.ranks) +
         " are no multiple of " + std::to_string(recipe.ranksPerHost);
}

template <Plan (*kMake)(const Recipe&, bool), bool kBidirectional>
Plan with(const Recipe& recipe) {
  return kMake(recipe, kBidirectional);
}

}  // namespace

const std::vector<BuiltIn>& library() {
  using Kind = CollectiveKind;
  static const std::vector<BuiltIn> plans{
      {"all_reduce.ring", Kind::AllReduce, "reduce-scatter and all-gather around a ring",
       with<ringAllReduce, false>, always},
      {"all_reduce.bidirectional_ring", Kind::AllReduce, "two rings, one each way round",
       with<ringAllReduce, true>, always},
      {"all_reduce.one_shot", Kind::AllReduce, "everything to everybody", oneShotAllReduce, always},
      {"all_reduce.one_shot_pull", Kind::AllReduce, "the same, reading other ranks' memory",
       oneShotPullAllReduce, always},
      {"all_reduce.two_shot", Kind::AllReduce, "direct reduce-scatter and all-gather",
       twoShotAllReduce, always},
      {"all_reduce.two_shot_pull", Kind::AllReduce, "the same, reading other ranks' memory",
       twoShotPullAllReduce, always},
      {"all_reduce.recursive_doubling", Kind::AllReduce, "exchanges of everything, log2 n steps",
       recursiveDoublingAllReduce, always},
      {"all_reduce.halving_doubling", Kind::AllReduce, "exchanges of halves, 2 log2 n steps",
       halvingDoublingAllReduce, always},
      {"all_reduce.hierarchical", Kind::AllReduce, "direct inside hosts, rings between them",
       hierarchicalAllReduce, wholeHosts},
      {"all_gather.ring", Kind::AllGather, "blocks go around a ring", with<ringAllGather, false>,
       always},
      {"all_gather.bidirectional_ring", Kind::AllGather, "two rings, one each way round",
       with<ringAllGather, true>, always},
      {"all_gather.direct", Kind::AllGather, "every block into everybody", directAllGather, always},
      {"all_gather.direct_pull", Kind::AllGather, "the same, reading other ranks' memory",
       directPullAllGather, always},
      {"all_gather.recursive_doubling", Kind::AllGather, "exchanges of everything, log2 n steps",
       recursiveDoublingAllGather, powersOfTwo},
      {"all_gather.bruck", Kind::AllGather, "log2 n steps for any n", bruckAllGather, always},
      {"all_gather.hierarchical", Kind::AllGather, "rings between hosts, direct inside",
       hierarchicalAllGather, wholeHosts},
      {"reduce_scatter.ring", Kind::ReduceScatter, "partial sums go around a ring",
       with<ringReduceScatter, false>, always},
      {"reduce_scatter.bidirectional_ring", Kind::ReduceScatter, "two rings, one each way round",
       with<ringReduceScatter, true>, always},
      {"reduce_scatter.direct", Kind::ReduceScatter, "every block to its owner",
       directReduceScatter, always},
      {"reduce_scatter.direct_pull", Kind::ReduceScatter, "the same, reading other ranks' memory",
       directPullReduceScatter, always},
      {"reduce_scatter.recursive_halving", Kind::ReduceScatter, "exchanges of halves, log2 n steps",
       recursiveHalvingReduceScatter, powersOfTwo},
      {"reduce_scatter.hierarchical", Kind::ReduceScatter, "direct inside hosts, rings between",
       hierarchicalReduceScatter, wholeHosts},
      {"all_to_all.direct", Kind::AllToAll, "every block to its rank", directAllToAll, always},
      {"all_to_all.direct_pull", Kind::AllToAll, "the same, reading other ranks' memory",
       directPullAllToAll, always},
      {"all_to_all.bruck", Kind::AllToAll, "log2 n steps of half the data", bruckAllToAll, always},
      {"all_to_all.hierarchical", Kind::AllToAll, "collected inside hosts, exchanged between",
       hierarchicalAllToAll, wholeHosts},
      {"broadcast.direct", Kind::Broadcast, "from the root to everybody", directBroadcast, always},
      {"broadcast.direct_pull", Kind::Broadcast, "the same, reading the root's memory",
       directPullBroadcast, always},
      {"broadcast.chain", Kind::Broadcast, "a pipeline through all ranks", chainBroadcast, always},
      {"broadcast.binomial", Kind::Broadcast, "a tree, log2 n steps", binomialBroadcast, always},
      {"broadcast.scatter_gather", Kind::Broadcast, "pieces to all, then a ring",
       scatterGatherBroadcast, always},
      {"broadcast.hierarchical", Kind::Broadcast, "a tree between hosts, direct inside",
       hierarchicalBroadcast, wholeHosts},
  };
  return plans;
}

Plan makePlan(std::string_view name, const Recipe& recipe) {
  const auto reject = [&](const std::string& why) {
    return Error(ErrorKind::InvalidArgument, "plan '" + std::string(name) + "': " + why);
  };
  if (recipe.ranks < 1 || recipe.ranks > 1024) {
    throw reject(std::to_string(recipe.ranks) + " ranks are not between 1 and 1024");
  }
  if (recipe.root < 0 || recipe.root >= recipe.ranks) {
    throw reject("there is no rank " + std::to_string(recipe.root) + " to be the root");
  }
  if (recipe.lanes < 1 || recipe.chunks < 1 || recipe.lanes > 64 || recipe.chunks > 1024) {
    throw reject("it needs 1 to 64 lanes and 1 to 1024 chunks");
  }
  for (const BuiltIn& plan : library()) {
    if (plan.name != name) continue;
    const std::string why = plan.whyNot(recipe);
    if (!why.empty()) throw reject(why);
    return plan.make(recipe);
  }
  std::string names;
  for (const BuiltIn& plan : library())
    names += (names.empty() ? "" : ", ") + std::string(plan.name);
  throw Error(ErrorKind::InvalidArgument,
              "there is no plan '" + std::string(name) + "' in the library", {}, {},
              "it has " + names);
}

}  // namespace ctran::plan
