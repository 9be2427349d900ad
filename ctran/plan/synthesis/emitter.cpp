#include "ctran/plan/synthesis/emitter.h"

#include <algorithm>

namespace ctran::plan {
namespace {

int depthOf(const std::vector<Branches>& trees) {
  int deepest = 0;
  for (const Branches& tree : trees) {
    deepest = std::max(deepest, *std::max_element(tree.depth.begin(), tree.depth.end()));
  }
  return deepest;
}

}  // namespace

Branches::Branches(const Tree& tree, int ranks, int chunk, int count)
    : root(tree.root),
      chunk(chunk),
      count(count),
      parent(ranks, -1),
      depth(ranks, 0),
      children(ranks) {
  for (const auto& [from, to] : tree.edges) {
    parent[to] = from;
    depth[to] = depth[from] + 1;
    children[from].push_back(to);
  }
}

std::vector<Branches> branchesOf(const Forest& forest, int ranks, int chunks) {
  const int perShare = chunks / static_cast<int>(forest.shares);
  std::vector<int> next(ranks, 0);
  std::vector<Branches> all;
  for (const Tree& tree : forest.trees) {
    const int count = static_cast<int>(tree.share) * perShare;
    all.emplace_back(tree, ranks, next[tree.root], count);
    next[tree.root] += count;
  }
  return all;
}

void Emitter::reduce(const std::vector<Branches>& trees, const Where& from, const Where& to,
                     const std::vector<Branches>& next) {
  std::vector<std::vector<Message>> messages(trees.size(), std::vector<Message>(b_.ranks()));
  const auto laneOf = [&](const Branches& tree, int rank) {
    return laneTo(kReduce, rank, rank == tree.root ? kHere : tree.parent[rank], tree.depth[rank]);
  };
  for (int depth = depthOf(trees); depth >= 0; --depth) {
    for (size_t t = 0; t < trees.size(); ++t) {
      const Branches& tree = trees[t];
      for (int rank = 0; rank < b_.ranks(); ++rank) {
        if (tree.depth[rank] != depth) continue;
        const LaneId lane = laneOf(tree, rank);
        Step& step = b_.step(lane);
        b_.move(step, {}, {from(rank, tree)}, tree.count);
        for (const int child : tree.children[rank]) read(step, messages[t][child], lane);
        if (rank != tree.root) {
          const int parent = tree.parent[rank];
          messages[t][rank] = {b_.allocate(parent, tree.count), lane, {laneOf(tree, parent)}};
          write(step, messages[t][rank]);
          continue;
        }
        step.to.push_back(to(rank, tree));
        const int end = tree.chunk + tree.count;
        for (const Branches& onward : next) {
          // Its chunks are complete with its last one.
          const int last = onward.chunk + onward.count - 1;
          if (onward.root != rank || last < tree.chunk || last >= end) continue;
          for (const int child : onward.children[rank]) {
            step.signals.push_back(b_.channel(lane, laneTo(kGather, rank, child, 0), 0, kResult));
          }
        }
      }
    }
  }
}

void Emitter::gather(const std::vector<Branches>& trees, const Where& from, const Where& to,
                     bool reduced) {
  std::vector<std::vector<Message>> messages(trees.size(), std::vector<Message>(b_.ranks()));
  const int deepest = depthOf(trees);
  for (int depth = 0; depth <= deepest; ++depth) {
    for (size_t t = 0; t < trees.size(); ++t) {
      const Branches& tree = trees[t];
      for (int rank = 0; rank < b_.ranks(); ++rank) {
        if (tree.depth[rank] != depth) continue;
        const bool isRoot = rank == tree.root;
        const Place output = to(rank, tree);
        const auto take = [&](Step& step, LaneId lane) {
          b_.move(step, {}, {}, tree.count, output.index % b_.chunks());
          if (isRoot) {
            step.from = {from(rank, tree)};
          } else {
            read(step, messages[t][rank], lane);
          }
        };
        if (!isRoot || !(from(rank, tree) == output)) {
          const LaneId lane = laneTo(kGather, rank, kHere, depth);
          Step& copy = b_.step(lane);
          take(copy, lane);
          copy.to = {output};
        }
        for (const int child : tree.children[rank]) {
          const LaneId lane = laneTo(kGather, rank, child, depth);
          Step& put = b_.step(lane);
          take(put, lane);
          if (isRoot && reduced) {
            const LaneId result = laneTo(kReduce, rank, kHere, 0);
            put.waits.push_back({b_.channel(result, lane, 0, kResult), 1});
          }
          Message message{
              b_.allocate(child, tree.count), lane, {laneTo(kGather, child, kHere, depth + 1)}};
          for (const int next : tree.children[child]) {
            message.readers.push_back(laneTo(kGather, child, next, depth + 1));
          }
          write(put, message);
          messages[t][child] = std::move(message);
        }
      }
    }
  }
}

void Emitter::setCredits(Plan& plan) const {
  for (const auto& [channel, messages] : messages_) {
    plan.channels[channel].credits = messages * plan.depth;
  }
}

LaneId Emitter::laneTo(Phase phase, int rank, int neighbour, int depth) {
  auto& lanes = lanes_[rank];
  const int next = static_cast<int>(lanes.size());
  return {rank, lanes.try_emplace({phase, neighbour, depth}, next).first->second};
}

void Emitter::write(Step& step, const Message& message) {
  step.to.push_back(message.place);
  for (const LaneId reader : message.readers) {
    const int credit = b_.channel(reader, message.writer, 0, kCredit);
    ++messages_[credit];
    step.waits.push_back({credit, 1});
    step.signals.push_back(b_.channel(message.writer, reader, 0, kData));
  }
}

void Emitter::read(Step& step, const Message& message, LaneId reader) {
  step.from.push_back(message.place);
  step.waits.push_back({b_.channel(message.writer, reader, 0, kData), 1});
  step.signals.push_back(b_.channel(reader, message.writer, 0, kCredit));
}

}  // namespace ctran::plan
