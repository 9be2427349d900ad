#pragma once

#include <map>
#include <vector>

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// Which signals of a plan a GPU need not send, as they travel in packets: whoever waits for such a
/// signal looks at the data itself.
///
/// That is right where nothing but packets goes from rank to rank. A packet tells no more than that
/// its own words are there; what its sender had written before, another lane of a rank sees behind
/// fences alone.
class Packets {
 public:
  explicit Packets(const Plan& plan);

  /// Whether packets are sent as such; if not, they are data with signals like any other.
  bool any() const { return any_; }
  /// Whether its signals travel in packets.
  bool carry(int channel) const { return any_ && carried_[channel]; }
  /// The rank that writes packets to that chunk of scratch.
  int writerOf(const Place& place) const { return writers_.at({place.rank, place.index}).rank; }
  /// The chunks of its scratch to which packets come.
  std::vector<int> chunksOf(int rank) const;
  /// Whether lanes of a rank share data beside the packets.
  bool needFences() const { return needFences_; }

  static bool isPacket(const Step& step, const Place& place) {
    return step.packet && place.buffer == Buffer::Scratch;
  }

 private:
  struct Writer {
    int rank, lane, step;
    auto operator<=>(const Writer&) const = default;
  };

  bool findWriters();
  void findCarried();
  bool reads(const LaneId& lane, const Step& step, const Writer& writer) const;
  bool lanesShareData() const;

  const Plan& plan_;
  bool any_ = false;
  bool needFences_ = false;
  std::map<std::pair<int, int>, Writer> writers_;  // by rank and chunk of scratch
  std::vector<bool> carried_;
};

}  // namespace ctran::plan
