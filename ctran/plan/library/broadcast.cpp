#include "ctran/plan/library/made.h"
#include "ctran/plan/library/stages.h"

namespace ctran::plan {
namespace {

void start(Builder& b, const Recipe& recipe) {
  b.setRoot(recipe.root);
  b.setDepth(2);
}

/// A binomial tree over the team, whose first member has the data: log2 steps.
void binomial(Builder& b, const std::vector<int>& team, int chunk, int lane, int use) {
  const int n = static_cast<int>(team.size());
  for (int m = 0; m < n; ++m) {
    const LaneId self{team[m], lane};
    int bit = 1;  // the lowest that is set: the parent is without it, children have a lower one
    while (bit < n && (m & bit) == 0) bit *= 2;
    if (m > 0) {
      Step& take = b.step(self);
      Link& link = b.link({team[m - bit], lane}, self, 1, use);
      link.arrive(take);
      b.move(take, {b.output(self.rank, chunk)}, {});
      link.release(take);
    }
    for (int child = bit / 2; child >= 1; child /= 2) {
      if (m + child >= n) continue;
      Step& put = b.step(self);
      b.move(put, {}, {b.output(self.rank, chunk)});
      b.link(self, {team[m + child], lane}, 1, use).put(put);
    }
  }
}

void takeChunk(Builder& b, LaneId from, LaneId self, int chunk, int use) {
  Step& step = b.step(self);
  Link& link = b.link(from, self, 1, use);
  link.arrive(step);
  b.move(step, {b.output(self.rank, chunk)}, {});
  link.release(step);
}

void putChunk(Builder& b, LaneId self, LaneId to, int chunk, int use) {
  Step& step = b.step(self);
  b.move(step, {}, {b.output(self.rank, chunk)});
  b.link(self, to, 1, use).put(step);
}

}  // namespace

/// The root puts the data into everybody: one step, n - 1 times the data.
Plan directBroadcast(const Recipe& recipe) {
  Builder b("broadcast.direct", CollectiveKind::Broadcast, recipe.ranks, recipe.lanes);
  start(b, recipe);
  for (int l = 0; l < recipe.lanes; ++l) {
    for (int d = 1; d < recipe.ranks; ++d) {
      const LaneId root{recipe.root, l}, other{(recipe.root + d) % recipe.ranks, l};
      putChunk(b, root, other, l, 0);
      takeChunk(b, root, other, l, 0);
    }
  }
  return b.finish();
}

/// The root shows the data, once; everybody reads it there. It may be four units ahead of the
/// slowest reader.
Plan directPullBroadcast(const Recipe& recipe) {
  Builder b("broadcast.direct_pull", CollectiveKind::Broadcast, recipe.ranks, 1);
  start(b, recipe);
  b.setDepth(4);
  std::vector<LaneId> readers;
  for (int r = 0; r < recipe.ranks; ++r) {
    if (r != recipe.root) readers.push_back({r, 0});
  }
  if (readers.empty()) return b.finish();
  SharedBuffer& buffer = b.sharedBuffer({recipe.root, 0}, readers, 1);
  Step& show = b.step({recipe.root, 0});
  b.move(show, {}, {b.output(recipe.root, 0)});
  buffer.write(show);
  buffer.publish(show);
  for (const LaneId reader : readers) {
    Step& read = b.step(reader);
    buffer.read(read, reader);
    b.move(read, {b.output(reader.rank, 0)}, {});
    buffer.release(read, reader);
  }
  return b.finish();
}

/// Every rank passes on what comes: n - 1 steps, but while one unit is on its way the next one
/// follows, so that large data takes as long as one step.
Plan chainBroadcast(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("broadcast.chain", CollectiveKind::Broadcast, recipe.ranks,
            recipe.lanes * recipe.chunks);
  start(b, recipe);
  for (int l = 0; l < recipe.lanes; ++l) {
    for (int k = 0; k < recipe.chunks; ++k) {
      const int chunk = l * recipe.chunks + k;
      for (int i = 0; i < n && n > 1; ++i) {
        const auto lane = [&](int at) { return LaneId{(recipe.root + at) % n, l}; };
        const Place place = b.output(lane(i).rank, chunk);
        Step& step = b.step(lane(i));
        if (i > 0) {
          b.link(lane(i - 1), lane(i)).arrive(step);
          b.move(step, {place}, {});
        } else {
          b.move(step, {}, {place});
        }
        if (i + 1 < n) b.link(lane(i), lane(i + 1)).put(step);
        if (i > 0) b.link(lane(i - 1), lane(i)).release(step);
      }
    }
  }
  return b.finish();
}

/// Whoever has the data sends it to one that has not: log2 n steps, rounded up.
Plan binomialBroadcast(const Recipe& recipe) {
  Builder b("broadcast.binomial", CollectiveKind::Broadcast, recipe.ranks, recipe.lanes);
  start(b, recipe);
  std::vector<int> team;
  for (int d = 0; d < recipe.ranks; ++d) team.push_back((recipe.root + d) % recipe.ranks);
  for (int l = 0; l < recipe.lanes; ++l) binomial(b, team, l, l, 0);
  return b.finish();
}

/// The root gives each rank a piece; then an all-gather around the ring: each rank sends and
/// receives the data once.
Plan scatterGatherBroadcast(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("broadcast.scatter_gather", CollectiveKind::Broadcast, recipe.ranks, n);
  start(b, recipe);
  for (int d = 1; d < n; ++d) {
    const LaneId root{recipe.root, 0}, other{(recipe.root + d) % n, 0};
    putChunk(b, root, other, other.rank, 0);
    takeChunk(b, root, other, other.rank, 0);
  }
  const auto place = [&](int r, int piece) { return b.output(r, piece); };
  ringAllGather(Stage{b, everybody(n), 0, 1, 1, place, place});
  return b.finish();
}

/// A binomial tree over the ranks of the root's number, one per host; then each of them puts the
/// data into the others of its host.
Plan hierarchicalBroadcast(const Recipe& recipe) {
  const int g = recipe.ranksPerHost, hosts = recipe.ranks / g;
  Builder b("broadcast.hierarchical", CollectiveKind::Broadcast, recipe.ranks, 1);
  start(b, recipe);
  const int local = recipe.root % g;
  std::vector<int> leaders;
  for (int h = 0; h < hosts; ++h) leaders.push_back((recipe.root + h * g) % recipe.ranks);
  binomial(b, leaders, 0, 0, 0);
  for (const int leader : leaders) {
    for (int d = 1; d < g; ++d) {
      const LaneId other{leader / g * g + (local + d) % g, 0};
      putChunk(b, {leader, 0}, other, 0, 1);
      takeChunk(b, {leader, 0}, other, 0, 1);
    }
  }
  return b.finish();
}

}  // namespace ctran::plan
