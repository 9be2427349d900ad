#include "ctran/plan/library/made.h"
#include "ctran/plan/library/stages.h"

namespace ctran::plan {

/// Partial sums of a block go around the ring until they come to its owner: n - 1 steps.
Plan ringReduceScatter(const Recipe& recipe, bool bidirectional) {
  const int n = recipe.ranks, lanes = recipe.lanes * (bidirectional ? 2 : 1);
  const int perBlock = lanes * recipe.chunks;
  Builder b(bidirectional ? "reduce_scatter.bidirectional_ring" : "reduce_scatter.ring",
            CollectiveKind::ReduceScatter, n, perBlock);
  for (int lane = 0; lane < lanes; ++lane) {
    for (int k = 0; k < recipe.chunks; ++k) {
      const int part = lane * recipe.chunks + k;
      ringReduceScatter(Stage{b, everybody(n), lane, 1, 0,
                              [&](int r, int block) { return b.input(r, block * perBlock + part); },
                              [&](int r, int) { return b.output(r, part); }},
                        bidirectional && lane % 2 == 1 ? -1 : 1);
    }
  }
  return b.finish();
}

/// Every rank puts each block into its owner, which reduces them in rank order: one step.
Plan directReduceScatter(const Recipe& recipe) {
  const int n = recipe.ranks, lanes = recipe.lanes;
  Builder b("reduce_scatter.direct", CollectiveKind::ReduceScatter, n, lanes);
  b.setDepth(2);
  for (int lane = 0; lane < lanes; ++lane) {
    directReduceScatter(
        Stage{b, everybody(n), lane, 1, 0,
              [&, lane](int r, int block) { return b.input(r, block * lanes + lane); },
              [&, lane](int r, int) { return b.output(r, lane); }});
  }
  return b.finish();
}

/// Every rank shows its blocks; the owner of a block reduces it straight from what the others show,
/// in rank order. Lane 0 shows the next unit while lane 1 reduces this one.
Plan directPullReduceScatter(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("reduce_scatter.direct_pull", CollectiveKind::ReduceScatter, n, 1);
  b.setDepth(2);
  std::vector<LaneId> readers;
  for (int r = 0; r < n; ++r) readers.push_back({r, 1});
  std::vector<SharedBuffer*> buffers;
  for (int r = 0; r < n; ++r) buffers.push_back(&b.sharedBuffer({r, 0}, readers, n));
  for (int r = 0; r < n; ++r) {
    const int last = r == n - 1 ? n - 2 : n - 1;
    for (int block = 0; block < n; ++block) {
      if (block == r) continue;
      Step& show = b.step({r, 0});
      b.move(show, {}, {b.input(r, block)});
      buffers[r]->write(show, block);
      if (block == last) buffers[r]->publish(show);
    }
    Step& reduce = b.step({r, 1});
    b.move(reduce, {b.output(r, 0)}, {});
    for (int i = 0; i < n; ++i) {
      if (n > 1) {
        buffers[i]->read(reduce, {r, 1}, r);
        buffers[i]->release(reduce, {r, 1});
      }
      if (i == r) {
        if (n > 1) reduce.from.pop_back();
        reduce.from.push_back(b.input(r, r));
      }
    }
  }
  return b.finish();
}

/// Partners exchange half of what they still have, n/2, n/4, ... blocks: log2 n steps, for powers
/// of two.
Plan recursiveHalvingReduceScatter(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("reduce_scatter.recursive_halving", CollectiveKind::ReduceScatter, n, 1);
  for (int r = 0; r < n; ++r) {
    const LaneId lane{r, 0};
    if (n == 1) b.copy(lane, b.output(r, 0), b.input(r, 0));
    const int base = r & (n / 2);  // of the blocks that are left after the first step
    const Place sums = n > 2 ? b.allocate(r, n / 2) : Place{};
    const auto have = [&](int block, bool first) {
      return first ? b.input(r, block) : b.scratch(r, sums.index + block - base);
    };
    int first = 0, use = 0;
    for (int half = n / 2; half >= 1; half /= 2, ++use) {
      const LaneId partner{r ^ half, 0};
      const bool left = (r & half) == 0, initial = half == n / 2;
      const int keep = first + (left ? 0 : half), give = first + (left ? half : 0);
      Step& put = b.step(lane);
      b.move(put, {}, {have(give, initial)}, half);
      b.link(lane, partner, half, use).put(put);
      Step& reduce = b.step(lane);
      Link& link = b.link(partner, lane, half, use);
      if (left) b.move(reduce, {}, {have(keep, initial)}, half);
      link.arrive(reduce);
      b.move(reduce, {half == 1 ? b.output(r, 0) : have(keep, false)}, {}, half);
      if (!left) reduce.from.push_back(have(keep, initial));
      link.release(reduce);
      first = keep;
    }
  }
  return b.finish();
}

/// Inside each host a direct reduce-scatter, after which a rank has the host's sums of one block
/// for each host; then a ring over the ranks of the same number, one per host.
Plan hierarchicalReduceScatter(const Recipe& recipe) {
  const int g = recipe.ranksPerHost, hosts = recipe.ranks / g;
  Builder b("reduce_scatter.hierarchical", CollectiveKind::ReduceScatter, recipe.ranks, 1);
  std::vector<int> sums;
  for (int r = 0; r < recipe.ranks; ++r) sums.push_back(b.allocate(r, hosts).index);
  for (int block = 0; block < hosts; ++block) {
    for (int h = 0; h < hosts; ++h) {
      directReduceScatter(Stage{b, hostTeam(h, g), 0, 1, 0,
                                [&, block](int r, int l) { return b.input(r, block * g + l); },
                                [&, block](int r, int) { return b.scratch(r, sums[r] + block); }});
    }
  }
  for (int l = 0; l < g; ++l) {
    ringReduceScatter(Stage{b, acrossHosts(l, g, hosts), 0, 1, 1,
                            [&](int r, int host) { return b.scratch(r, sums[r] + host); },
                            [&](int r, int) { return b.output(r, 0); }});
  }
  return b.finish();
}

}  // namespace ctran::plan
