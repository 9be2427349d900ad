#include "ctran/plan/library/stages.h"

namespace ctran::plan {

void ringReduceScatter(const Stage& stage, int direction) {
  const int n = stage.size();
  for (int m = 0; m < n; ++m) {
    for (int s = 0; s < n; ++s) {
      // Piece i sets out at the member after i, and comes to i in the end.
      const int piece = stage.piece(m - direction * (1 + s));
      Step& step = stage.step(m);
      if (s > 0) stage.link(m - direction, m).arrive(step);
      const Place own = stage.from(stage.member(m), piece);
      if (s + 1 < n) {
        stage.builder.move(step, {}, {own}, stage.chunks);
        stage.link(m, m + direction).put(step);
      } else {
        stage.builder.move(step, {stage.to(stage.member(m), piece)}, {own}, stage.chunks);
      }
      if (s > 0) stage.link(m - direction, m).release(step);
    }
  }
}

void ringAllGather(const Stage& stage, int direction) {
  const int n = stage.size();
  for (int m = 0; m < n; ++m) {
    const int rank = stage.member(m);
    for (int s = 0; s < n; ++s) {
      const int piece = stage.piece(m - direction * s);
      const Place place = stage.to(rank, piece);
      Step* step = nullptr;
      if (s == 0) {
        const Place own = stage.from(rank, piece);
        if (n == 1) {
          stage.builder.copy({rank, stage.lane}, place, own, stage.chunks);
          continue;
        }
        step = &stage.step(m);
        stage.builder.move(*step, {}, {own}, stage.chunks);
        if (!(own == place)) step->to.push_back(place);
      } else {
        step = &stage.step(m);
        stage.link(m - direction, m).arrive(*step);
        stage.builder.move(*step, {place}, {}, stage.chunks);
      }
      if (s + 1 < n) stage.link(m, m + direction).put(*step);
      if (s > 0) stage.link(m - direction, m).release(*step);
    }
  }
}

void directReduceScatter(const Stage& stage) {
  const int n = stage.size();
  for (int m = 0; m < n; ++m) {
    const int rank = stage.member(m);
    for (int d = 1; d < n; ++d) {
      const int peer = stage.piece(m + d);
      Step& put = stage.step(m);
      stage.builder.move(put, {}, {stage.from(rank, peer)}, stage.chunks);
      stage.link(m, peer).put(put);
    }
    Step& reduce = stage.step(m);
    for (int i = 0; i < n; ++i) {
      if (i == m) {
        stage.builder.move(reduce, {}, {stage.from(rank, m)}, stage.chunks);
      } else {
        stage.link(i, m).arrive(reduce);
        stage.link(i, m).release(reduce);
      }
    }
    const Place result = stage.to(rank, m);
    stage.builder.move(reduce, {result}, {}, stage.chunks, reduce.part);
  }
}

void directAllGather(const Stage& stage) {
  const int n = stage.size();
  for (int m = 0; m < n; ++m) {
    const int rank = stage.member(m);
    const Place own = stage.from(rank, m);
    for (int d = 1; d < n; ++d) {
      Step& put = stage.step(m);
      stage.builder.move(put, {}, {own}, stage.chunks);
      stage.link(m, stage.piece(m + d)).put(put);
    }
    stage.builder.copy({rank, stage.lane}, stage.to(rank, m), own, stage.chunks);
    for (int d = 1; d < n; ++d) {
      const int peer = stage.piece(m - d);
      Step& take = stage.step(m);
      stage.link(peer, m).arrive(take);
      stage.builder.move(take, {stage.to(rank, peer)}, {}, stage.chunks);
      stage.link(peer, m).release(take);
    }
  }
}

}  // namespace ctran::plan
