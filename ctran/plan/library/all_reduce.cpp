#include <bit>
#include <numeric>

#include "ctran/plan/library/made.h"
#include "ctran/plan/library/stages.h"

namespace ctran::plan {

/// Reduce-scatter, then all-gather, both around the ring: 2 (n - 1) steps, in which each rank sends
/// 2 (n - 1) / n of the data to its neighbour. Every lane takes its share of each piece.
Plan ringAllReduce(const Recipe& recipe, bool bidirectional) {
  const int n = recipe.ranks, lanes = recipe.lanes * (bidirectional ? 2 : 1);
  const int perPiece = lanes * recipe.chunks;
  Builder b(bidirectional ? "all_reduce.bidirectional_ring" : "all_reduce.ring",
            CollectiveKind::AllReduce, n, n * perPiece);
  for (int lane = 0; lane < lanes; ++lane) {
    for (int k = 0; k < recipe.chunks; ++k) {
      const int first = lane * recipe.chunks + k;
      Stage stage{b,
                  everybody(n),
                  lane,
                  1,
                  0,
                  [&](int r, int piece) { return b.input(r, piece * perPiece + first); },
                  [&](int r, int piece) { return b.output(r, piece * perPiece + first); }};
      const int direction = bidirectional && lane % 2 == 1 ? -1 : 1;
      ringReduceScatter(stage, direction);
      stage.from = stage.to;
      ringAllGather(stage, direction);
    }
  }
  return b.finish();
}

/// Everybody sends everything to everybody and reduces it, in rank order: one step, n - 1 times the
/// data.
Plan oneShotAllReduce(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_reduce.one_shot", CollectiveKind::AllReduce, n, recipe.lanes);
  b.setDepth(2);
  for (int lane = 0; lane < recipe.lanes; ++lane) {
    const Stage stage{b,
                      everybody(n),
                      lane,
                      1,
                      0,
                      [&, lane](int r, int) { return b.input(r, lane); },
                      [&, lane](int r, int) { return b.output(r, lane); }};
    directReduceScatter(stage);
  }
  return b.finish();
}

/// The one shot for ranks that can read each other's memory: each rank shows its input, once, and
/// reduces what all show, in rank order. Lane 0 shows the next unit while lane 1 reduces this one.
Plan oneShotPullAllReduce(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_reduce.one_shot_pull", CollectiveKind::AllReduce, n, 1);
  b.setDepth(2);
  std::vector<LaneId> readers;
  for (int r = 0; r < n; ++r) readers.push_back({r, 1});
  std::vector<SharedBuffer*> buffers;
  for (int r = 0; r < n; ++r) buffers.push_back(&b.sharedBuffer({r, 0}, readers, 1));
  for (int r = 0; r < n; ++r) {
    Step& show = b.step({r, 0});
    b.move(show, {}, {b.input(r, 0)});
    buffers[r]->write(show);
    buffers[r]->publish(show);
    Step& reduce = b.step({r, 1});
    for (int i = 0; i < n; ++i) {
      buffers[i]->read(reduce, {r, 1});
      // Its own, once that is shown: after that, in place, the output may be written.
      if (i == r) reduce.from.back() = b.input(r, 0);
      buffers[i]->release(reduce, {r, 1});
    }
    b.move(reduce, {b.output(r, 0)}, {});
  }
  return b.finish();
}

/// Direct reduce-scatter, then direct all-gather: two steps, each rank sends 2 (n - 1) / n of the
/// data. Reduced in rank order.
Plan twoShotAllReduce(const Recipe& recipe) {
  const int n = recipe.ranks, lanes = recipe.lanes;
  Builder b("all_reduce.two_shot", CollectiveKind::AllReduce, n, n * lanes);
  b.setDepth(2);
  for (int lane = 0; lane < lanes; ++lane) {
    Stage stage{b,
                everybody(n),
                lane,
                1,
                0,
                [&, lane](int r, int piece) { return b.input(r, piece * lanes + lane); },
                [&, lane](int r, int piece) { return b.output(r, piece * lanes + lane); }};
    directReduceScatter(stage);
    stage.use = 1;
    stage.from = stage.to;
    directAllGather(stage);
  }
  return b.finish();
}

/// The two shots for ranks that can read each other's memory: each rank shows its input, reduces
/// its piece straight from what the others show, in rank order, and shows the result, which the
/// others copy. Each byte is written to shared memory twice at most. Lane 0 shows the next unit
/// while lane 1 reduces and collects this one.
Plan twoShotPullAllReduce(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_reduce.two_shot_pull", CollectiveKind::AllReduce, n, n);
  b.setDepth(2);
  std::vector<LaneId> readers;
  for (int r = 0; r < n; ++r) readers.push_back({r, 1});
  std::vector<SharedBuffer*> inputs, results;
  for (int r = 0; r < n; ++r) {
    std::vector<LaneId> others;
    for (const LaneId id : readers) {
      if (id.rank != r) others.push_back(id);
    }
    // Its own lane 1 reads, too: it must not be ahead.
    inputs.push_back(&b.sharedBuffer({r, 0}, readers, n));
    results.push_back(&b.sharedBuffer({r, 1}, others, 1));
  }
  for (int r = 0; r < n; ++r) {
    // All pieces but its own, which nobody else reads.
    for (const auto& [first, end] : {std::pair{0, r}, std::pair{r + 1, n}}) {
      if (first == end) continue;
      Step& show = b.step({r, 0});
      b.move(show, {}, {b.input(r, first)}, end - first);
      inputs[r]->write(show, first);
      if (end == n || (end == r && r == n - 1)) inputs[r]->publish(show);
    }
    if (n == 1) {
      b.copy({r, 1}, b.output(r, 0), b.input(r, 0));
      continue;
    }
    const LaneId lane{r, 1};
    Step& reduce = b.step(lane);
    for (int i = 0; i < n; ++i) {
      const Place shown = inputs[i]->read(reduce, lane, r);
      if (i == r) reduce.from.back() = b.input(r, r);
      (void)shown;
      inputs[i]->release(reduce, lane);
    }
    reduce.part = r;
    results[r]->write(reduce);
    reduce.to.push_back(b.output(r, r));
    results[r]->publish(reduce);
    for (int d = 1; d < n; ++d) {
      const int peer = (r + d) % n;
      Step& take = b.step(lane);
      results[peer]->read(take, lane);
      b.move(take, {b.output(r, peer)}, {});
      results[peer]->release(take, lane);
    }
  }
  return b.finish();
}

namespace {

/// Ranks beyond the largest power of two send their data to a rank below it, which then stands for
/// both; in the end they get the result from it. Pairs of neighbours, so that the order of ranks is
/// kept: of the first 2 (n - p) ranks the even ones stand for the pair.
struct Folding {
  int powerOfTwo;
  int extra;

  explicit Folding(int ranks)
      : powerOfTwo(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        extra(ranks - powerOfTwo) {}

  int rankOf(int member) const { return member < extra ? 2 * member : member + extra; }
};

/// The data of the odd ones of the pairs joins that of the even ones, in `output`.
void foldIn(Builder& b, const Folding& folding, int chunks) {
  for (int i = 0; i < folding.extra; ++i) {
    const LaneId even{2 * i, 0}, odd{2 * i + 1, 0};
    Link& link = b.link(odd, even, chunks, 100);
    Step& put = b.step(odd);
    b.move(put, {}, {b.input(odd.rank, 0)}, chunks);
    link.put(put);
    Step& reduce = b.step(even);
    b.move(reduce, {b.output(even.rank, 0)}, {b.input(even.rank, 0)}, chunks);
    link.arrive(reduce);
    link.release(reduce);
  }
}

void foldOut(Builder& b, const Folding& folding, int chunks) {
  for (int i = 0; i < folding.extra; ++i) {
    const LaneId even{2 * i, 0}, odd{2 * i + 1, 0};
    Link& link = b.link(even, odd, chunks, 101);
    Step& put = b.step(even);
    b.move(put, {}, {b.output(even.rank, 0)}, chunks);
    link.put(put);
    Step& take = b.step(odd);
    link.arrive(take);
    b.move(take, {b.output(odd.rank, 0)}, {}, chunks);
    link.release(take);
  }
}

}  // namespace

/// Partners at distance 1, 2, 4, ... exchange all they have: log2 n steps, each with all the data;
/// two more when n is no power of two. Neighbouring halves are added left to right, so the ranks
/// agree about every bit.
Plan recursiveDoublingAllReduce(const Recipe& recipe) {
  Builder b("all_reduce.recursive_doubling", CollectiveKind::AllReduce, recipe.ranks, 1);
  b.setDepth(2);
  const Folding folding(recipe.ranks);
  foldIn(b, folding, 1);
  for (int m = 0; m < folding.powerOfTwo; ++m) {
    const LaneId lane{folding.rankOf(m), 0};
    Place have = m < folding.extra ? b.output(lane.rank, 0) : b.input(lane.rank, 0);
    int use = 0;
    for (int distance = 1; distance < folding.powerOfTwo; distance *= 2, ++use) {
      const LaneId partner{folding.rankOf(m ^ distance), 0};
      Step& put = b.step(lane);
      b.move(put, {}, {have});
      b.link(lane, partner, 1, use).put(put);
      Step& reduce = b.step(lane);
      Link& link = b.link(partner, lane, 1, use);
      const bool left = (m & distance) == 0;
      if (left) b.move(reduce, {}, {have});
      link.arrive(reduce);
      b.move(reduce, {b.output(lane.rank, 0)}, {});
      if (!left) reduce.from.push_back(have);
      link.release(reduce);
      have = b.output(lane.rank, 0);
    }
  }
  foldOut(b, folding, 1);
  if (recipe.ranks == 1) b.copy({0, 0}, b.output(0, 0), b.input(0, 0));
  return b.finish();
}

/// Reduce-scatter by halving: partners exchange half of what they still have, n/2, n/4, ... pieces;
/// then all-gather by doubling, back the same way. 2 log2 n steps, 2 (n - 1) / n of the data.
Plan halvingDoublingAllReduce(const Recipe& recipe) {
  const Folding folding(recipe.ranks);
  const int p = folding.powerOfTwo;
  Builder b("all_reduce.halving_doubling", CollectiveKind::AllReduce, recipe.ranks, p);
  foldIn(b, folding, p);
  for (int m = 0; m < p; ++m) {
    const LaneId lane{folding.rankOf(m), 0};
    bool reduced = m < folding.extra;
    int first = 0, use = 0;
    for (int half = p / 2; half >= 1; half /= 2, ++use) {
      const LaneId partner{folding.rankOf(m ^ half), 0};
      const bool left = (m & half) == 0;
      const int keep = first + (left ? 0 : half), give = first + (left ? half : 0);
      const auto have = [&](int i) {
        return reduced ? b.output(lane.rank, i) : b.input(lane.rank, i);
      };
      Step& put = b.step(lane);
      b.move(put, {}, {have(give)}, half);
      b.link(lane, partner, half, use).put(put);
      Step& reduce = b.step(lane);
      Link& link = b.link(partner, lane, half, use);
      if (left) b.move(reduce, {}, {have(keep)}, half);
      link.arrive(reduce);
      b.move(reduce, {b.output(lane.rank, keep)}, {}, half);
      if (!left) reduce.from.push_back(have(keep));
      link.release(reduce);
      first = keep;
      reduced = true;
    }
    for (int half = 1; half < p; half *= 2, ++use) {
      const LaneId partner{folding.rankOf(m ^ half), 0};
      const int theirs = first ^ half;
      Step& put = b.step(lane);
      b.move(put, {}, {b.output(lane.rank, first)}, half);
      b.link(lane, partner, half, use).put(put);
      Step& take = b.step(lane);
      Link& link = b.link(partner, lane, half, use);
      link.arrive(take);
      b.move(take, {b.output(lane.rank, theirs)}, {}, half);
      link.release(take);
      first &= ~half;
    }
  }
  foldOut(b, folding, p);
  if (recipe.ranks == 1) b.copy({0, 0}, b.output(0, 0), b.input(0, 0));
  return b.finish();
}

/// Inside each host a direct reduce-scatter; then, for each piece, a ring over the ranks that have
/// it, one per host; then inside each host a direct all-gather. Between hosts every rank sends
/// 2 (h - 1) / h of its piece, which is 1/g of the data, for h hosts of g ranks.
Plan hierarchicalAllReduce(const Recipe& recipe) {
  const int g = recipe.ranksPerHost, hosts = recipe.ranks / g;
  Builder b("all_reduce.hierarchical", CollectiveKind::AllReduce, recipe.ranks, g * hosts);
  const auto input = [&](int r, int piece) { return b.input(r, piece * hosts); };
  const auto output = [&](int r, int piece) { return b.output(r, piece * hosts); };
  for (int h = 0; h < hosts; ++h) {
    directReduceScatter({b, hostTeam(h, g), 0, hosts, 0, input, output});
  }
  for (int l = 0; l < g; ++l) {
    const auto part = [&, l](int r, int piece) { return b.output(r, l * hosts + piece); };
    const Stage ring{b, acrossHosts(l, g, hosts), 0, 1, 1, part, part};
    ringReduceScatter(ring);
    ringAllGather(ring);
  }
  for (int h = 0; h < hosts; ++h) {
    directAllGather({b, hostTeam(h, g), 0, hosts, 2, output, output});
  }
  return b.finish();
}

}  // namespace ctran::plan
