#include <algorithm>
#include <bit>

#include "ctran/plan/library/made.h"
#include "ctran/plan/library/stages.h"

namespace ctran::plan {

/// n - 1 steps, in each of which a rank passes on to its neighbour the block it got last.
Plan ringAllGather(const Recipe& recipe, bool bidirectional) {
  const int n = recipe.ranks, lanes = recipe.lanes * (bidirectional ? 2 : 1);
  const int perBlock = lanes * recipe.chunks;
  Builder b(bidirectional ? "all_gather.bidirectional_ring" : "all_gather.ring",
            CollectiveKind::AllGather, n, perBlock);
  for (int lane = 0; lane < lanes; ++lane) {
    for (int k = 0; k < recipe.chunks; ++k) {
      const int part = lane * recipe.chunks + k;
      ringAllGather(Stage{b, everybody(n), lane, 1, 0, [&](int r, int) { return b.input(r, part); },
                          [&](int r, int block) { return b.output(r, block * perBlock + part); }},
                    bidirectional && lane % 2 == 1 ? -1 : 1);
    }
  }
  return b.finish();
}

/// Every rank puts its block into all others: one step.
Plan directAllGather(const Recipe& recipe) {
  const int n = recipe.ranks, lanes = recipe.lanes;
  Builder b("all_gather.direct", CollectiveKind::AllGather, n, lanes);
  b.setDepth(2);
  for (int lane = 0; lane < lanes; ++lane) {
    directAllGather(
        Stage{b, everybody(n), lane, 1, 0, [&, lane](int r, int) { return b.input(r, lane); },
              [&, lane](int r, int block) { return b.output(r, block * lanes + lane); }});
  }
  return b.finish();
}

/// Every rank shows its block, once; the others read it, nearest first, so that no two read the
/// same one at a time. Lane 0 shows the next unit while lane 1 reads this one.
Plan directPullAllGather(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_gather.direct_pull", CollectiveKind::AllGather, n, 1);
  b.setDepth(2);
  std::vector<SharedBuffer*> buffers;
  for (int r = 0; r < n; ++r) {
    std::vector<LaneId> others;
    for (int o = 0; o < n; ++o) {
      if (o != r) others.push_back({o, 1});
    }
    buffers.push_back(&b.sharedBuffer({r, 0}, others, 1));
  }
  for (int r = 0; r < n; ++r) {
    Step& show = b.step({r, 0});
    b.move(show, {b.output(r, r)}, {b.input(r, 0)});
    buffers[r]->write(show);
    buffers[r]->publish(show);
    for (int d = 1; d < n; ++d) {
      const int peer = (r + d) % n;
      Step& take = b.step({r, 1});
      buffers[peer]->read(take, {r, 1});
      b.move(take, {b.output(r, peer)}, {});
      buffers[peer]->release(take, {r, 1});
    }
  }
  return b.finish();
}

/// Partners at distance 1, 2, 4, ... exchange all they have: log2 n steps, for powers of two.
Plan recursiveDoublingAllGather(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_gather.recursive_doubling", CollectiveKind::AllGather, n, 1);
  for (int r = 0; r < n; ++r) {
    const LaneId lane{r, 0};
    b.copy(lane, b.output(r, r), b.input(r, 0));
    int use = 0;
    for (int half = 1; half < n; half *= 2, ++use) {
      const LaneId partner{r ^ half, 0};
      const int first = r & ~(half - 1);
      Step& put = b.step(lane);
      b.move(put, {}, {b.output(r, first)}, half);
      b.link(lane, partner, half, use).put(put);
      Step& take = b.step(lane);
      Link& link = b.link(partner, lane, half, use);
      link.arrive(take);
      b.move(take, {b.output(r, first ^ half)}, {}, half);
      link.release(take);
    }
  }
  return b.finish();
}

/// In step k a rank gets from the one 2^k after it as many blocks as it has, or as are missing:
/// log2 n steps, rounded up, for any n.
Plan bruckAllGather(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_gather.bruck", CollectiveKind::AllGather, n, 1);
  for (int r = 0; r < n; ++r) {
    const LaneId lane{r, 0};
    b.copy(lane, b.output(r, r), b.input(r, 0));
    int use = 0;
    for (int distance = 1; distance < n; distance *= 2, ++use) {
      const LaneId to{(r - distance + n) % n, 0}, from{(r + distance) % n, 0};
      const int blocks = std::min(distance, n - distance);
      for (int i = 0; i < blocks; ++i) {
        Step& put = b.step(lane);
        b.move(put, {}, {b.output(r, (r + i) % n)});
        b.link(lane, to, 1, use).put(put);
        // Taken one by one: a link need not hold all that a step moves.
        Step& take = b.step(lane);
        Link& link = b.link(from, lane, 1, use);
        link.arrive(take);
        b.move(take, {b.output(r, (from.rank + i) % n)}, {});
        link.release(take);
      }
    }
  }
  return b.finish();
}

/// A ring over the ranks of the same number, one per host; then inside each host everybody puts
/// what it has got into the others. Each block enters a host once.
Plan hierarchicalAllGather(const Recipe& recipe) {
  const int g = recipe.ranksPerHost, hosts = recipe.ranks / g;
  Builder b("all_gather.hierarchical", CollectiveKind::AllGather, recipe.ranks, 1);
  for (int l = 0; l < g; ++l) {
    ringAllGather(Stage{b, acrossHosts(l, g, hosts), 0, 1, 0,
                        [&](int r, int) { return b.input(r, 0); },
                        [&, l](int r, int host) { return b.output(r, host * g + l); }});
  }
  for (int block = 0; block < hosts; ++block) {
    const auto place = [&, block](int r, int l) { return b.output(r, block * g + l); };
    for (int h = 0; h < hosts; ++h) {
      directAllGather(Stage{b, hostTeam(h, g), 0, 1, 1, place, place});
    }
  }
  return b.finish();
}

}  // namespace ctran::plan
