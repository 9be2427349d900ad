#include "ctran/plan/library/made.h"
#include "ctran/plan/library/stages.h"

namespace ctran::plan {

/// Every rank puts each block into the rank it is for: one step, every byte sent once.
Plan directAllToAll(const Recipe& recipe) {
  const int n = recipe.ranks, lanes = recipe.lanes;
  Builder b("all_to_all.direct", CollectiveKind::AllToAll, n, lanes);
  b.setDepth(2);
  for (int r = 0; r < n; ++r) {
    for (int l = 0; l < lanes; ++l) {
      const LaneId lane{r, l};
      // All puts come first: in place, what arrives overwrites what is sent.
      for (int d = 1; d < n; ++d) {
        const int peer = (r + d) % n;
        Step& put = b.step(lane);
        b.move(put, {}, {b.input(r, peer * lanes + l)});
        b.link(lane, {peer, l}).put(put);
      }
      b.copy(lane, b.output(r, r * lanes + l), b.input(r, r * lanes + l));
      for (int d = 1; d < n; ++d) {
        const int peer = (r - d + n) % n;
        Step& take = b.step(lane);
        Link& link = b.link({peer, l}, lane);
        link.arrive(take);
        b.move(take, {b.output(r, peer * lanes + l)}, {});
        link.release(take);
      }
    }
  }
  return b.finish();
}

/// Every rank shows its blocks; each is read by the rank it is for. Lane 0 shows the next unit
/// while lane 1 reads this one.
Plan directPullAllToAll(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_to_all.direct_pull", CollectiveKind::AllToAll, n, 1);
  b.setDepth(2);
  std::vector<LaneId> readers;
  for (int r = 0; r < n; ++r) readers.push_back({r, 1});
  std::vector<SharedBuffer*> buffers;
  for (int r = 0; r < n; ++r) buffers.push_back(&b.sharedBuffer({r, 0}, readers, n));
  for (int r = 0; r < n; ++r) {
    if (n == 1) {
      b.copy({r, 1}, b.output(r, r), b.input(r, r));
      continue;
    }
    const int last = r == n - 1 ? n - 2 : n - 1;
    for (int block = 0; block < n; ++block) {
      if (block == r) continue;
      Step& show = b.step({r, 0});
      b.move(show, {}, {b.input(r, block)});
      buffers[r]->write(show, block);
      if (block == last) buffers[r]->publish(show);
    }
    // Beginning with its own, once the others are shown: after that, in place, the output may be
    // written.
    for (int d = 0; d < n; ++d) {
      const int peer = (r + d) % n;
      Step& take = b.step({r, 1});
      buffers[peer]->read(take, {r, 1}, r);
      if (peer == r) take.from.back() = b.input(r, r);
      b.move(take, {b.output(r, peer)}, {});
      buffers[peer]->release(take, {r, 1});
    }
  }
  return b.finish();
}

/// In step k a rank sends to the one 2^k after it all blocks that have that bit in the distance
/// which they have to go: log2 n steps, rounded up, of half the data each.
Plan bruckAllToAll(const Recipe& recipe) {
  const int n = recipe.ranks;
  Builder b("all_to_all.bruck", CollectiveKind::AllToAll, n, 1);
  for (int r = 0; r < n; ++r) {
    const LaneId lane{r, 0};
    const int first = b.allocate(r, n).index;
    const auto moving = [&](int distance) { return b.scratch(r, first + distance); };
    for (int i = 0; i < n; ++i) b.copy(lane, moving(i), b.input(r, (r + i) % n));
    int use = 0;
    for (int bit = 1; bit < n; bit *= 2, ++use) {
      const LaneId to{(r + bit) % n, 0}, from{(r - bit + n) % n, 0};
      for (int i = 0; i < n; ++i) {
        if ((i & bit) == 0) continue;
        Step& put = b.step(lane);
        b.move(put, {}, {moving(i)});
        b.link(lane, to, 1, use).put(put);
        // The blocks come and go in the same order; taking each at once keeps the link short.
        Step& take = b.step(lane);
        Link& link = b.link(from, lane, 1, use);
        link.arrive(take);
        b.move(take, {moving(i)}, {});
        link.release(take);
      }
    }
    for (int i = 0; i < n; ++i) b.copy(lane, b.output(r, (r - i + n) % n), moving(i));
  }
  return b.finish();
}

/// Inside each host, ranks give each other the blocks for the ranks of the same number on all
/// hosts; then these exchange them. Between hosts there are g times fewer, larger messages.
Plan hierarchicalAllToAll(const Recipe& recipe) {
  const int g = recipe.ranksPerHost, hosts = recipe.ranks / g;
  Builder b("all_to_all.hierarchical", CollectiveKind::AllToAll, recipe.ranks, 1);
  for (int r = 0; r < recipe.ranks; ++r) {
    const LaneId lane{r, 0};
    const int host = r / g, local = r % g;
    // held(l, h): from rank l of this host to the rank of this number on host h.
    const int first = b.allocate(r, g * hosts).index;
    const auto held = [&](int l, int h) { return b.scratch(r, first + h * g + l); };
    for (int h = 0; h < hosts; ++h) b.copy(lane, held(local, h), b.input(r, h * g + local));
    for (int d = 1; d < g; ++d) {
      const int to = (local + d) % g, from = (local - d + g) % g;
      for (int h = 0; h < hosts; ++h) {
        Step& put = b.step(lane);
        b.move(put, {}, {b.input(r, h * g + to)});
        b.link(lane, {host * g + to, 0}).put(put);
        Step& take = b.step(lane);
        Link& link = b.link({host * g + from, 0}, lane);
        link.arrive(take);
        b.move(take, {held(from, h)}, {});
        link.release(take);
      }
    }
    for (int l = 0; l < g; ++l) b.copy(lane, b.output(r, host * g + l), held(l, host));
    for (int d = 1; d < hosts; ++d) {
      const int to = (host + d) % hosts;
      Step& put = b.step(lane);
      b.move(put, {}, {held(0, to)}, g);
      b.link(lane, {to * g + local, 0}, g, 1).put(put);
    }
    for (int d = 1; d < hosts; ++d) {
      const int from = (host - d + hosts) % hosts;
      Step& take = b.step(lane);
      Link& link = b.link({from * g + local, 0}, lane, g, 1);
      link.arrive(take);
      b.move(take, {b.output(r, from * g)}, {}, g);
      link.release(take);
    }
  }
  return b.finish();
}

}  // namespace ctran::plan
