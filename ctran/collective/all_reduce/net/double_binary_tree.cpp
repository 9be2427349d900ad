#include <algorithm>
#include <vector>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"
#include "ctran/collective/partial.h"

namespace ctran {
namespace {

/// A binary tree over the positions 0 .. size-1 in which every odd position is a leaf.
struct Tree {
  explicit Tree(int size) : size(size) {}
  const int size;

  /// -1 for the root, which is position 0.
  int parentOf(int position) const {
    if (position == 0) return -1;
    const int bit = position & -position;
    const int above = (position ^ bit) | (bit << 1);
    return above < size ? above : position ^ bit;
  }
  /// Returns at most two.
  std::vector<int> childrenOf(int position) const {
    std::vector<int> children;
    for (int bit = 1; bit < size; bit *= 2) {
      for (const int child : {position - bit, position + bit}) {
        if (child > 0 && child < size && parentOf(child) == position) children.push_back(child);
      }
    }
    return children;
  }
};

constexpr size_t kMostSegment = 256 << 10, kLeastSegment = 16 << 10, kSegments = 16;

/// A half of the tensor goes through a tree in segments of that size.
size_t treeSegmentBytes(size_t half, size_t element) {
  const size_t wanted = std::clamp(half / kSegments, kLeastSegment, kMostSegment);
  return wanted / element * element;
}

/// One half of the tensor in one of the trees: each segment is summed on its way to the root, whose
/// result goes back the same way. `advance` does what can be done, and never waits.
class TensorHalf {
 public:
  TensorHalf(NetContext& net, const Collective& c, uint32_t number, size_t begin, size_t count)
      : net_(net),
        c_(c),
        number_(number),
        element_(sizeOf(c.type)),
        segment_(treeSegmentBytes(count * element_, element_)),
        bytes_(count * element_),
        segments_((bytes_ + segment_ - 1) / segment_),
        input_(c.input + begin * element_),
        output_(c.output + begin * element_) {
    const Tree tree(net.size);
    const int position = positionOf(net.rank);
    const int parent = tree.parentOf(position);
    parent_ = parent < 0 ? -1 : rankAt(parent);
    for (const int child : tree.childrenOf(position)) children_.push_back(rankAt(child));
    arrived_.resize(children_.size() * kWindow);
    up_.resize(kWindow);
    down_.resize(segments_);
  }

  size_t scratchBytes() const { return (children_.size() + 1) * kWindow * segment_; }
  void begin(std::byte* scratch) {
    scratch_ = scratch;
    for (size_t k = 0; k < kWindow; ++k) bindChildren(k);
  }

  void advance() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (; maySum() && childrenHaveCome(); moved = true) sum();
      for (; bound_ < summed_ && holds(up_[bound_ % kWindow]); moved = true) bindDown();
      for (; spread_ < bound_ && holds(down_[spread_]); moved = true) spread();
    }
  }
  bool done() const { return spread_ == segments_; }
  /// What it waits for, also where that has come since `advance` looked.
  void addConditions(std::vector<Condition>& conditions) const {
    if (maySum()) {
      for (size_t i = 0; i < children_.size(); ++i) {
        const Arrival& arrival = arrived_[slot(i, summed_)];
        if (holds(arrival) && i + 1 < children_.size()) continue;
        conditions.push_back(arrival.condition());
        break;
      }
    }
    if (bound_ < summed_) conditions.push_back(up_[bound_ % kWindow].condition());
    if (spread_ < bound_) conditions.push_back(down_[spread_].condition());
  }
  std::vector<Dispatch>& spreading() { return spreading_; }

 private:
  /// Segments that are on their way to the root at a time.
  static constexpr size_t kWindow = 4;

  /// Subtrees are ranges of places, in which the ranks of a host are together. In the second tree
  /// the leaves of the first are not leaves, but for one.
  int positionOf(int rank) const {
    const int place = net_.placeOf(rank);
    if (number_ == 0) return place;
    return net_.size % 2 == 0 ? net_.size - 1 - place : (place + 1) % net_.size;
  }
  int rankAt(int position) const {
    if (number_ == 0) return net_.at(position);
    return net_.at(net_.size % 2 == 0 ? net_.size - 1 - position : position - 1);
  }
  static bool holds(const Dispatch& message) { return message.condition().holds(); }
  static bool holds(const Arrival& message) { return message.condition().holds(); }
  bool isRoot() const { return parent_ < 0; }
  bool maySum() const { return summed_ < segments_ && summed_ < bound_ + kWindow; }
  size_t slot(size_t child, size_t k) const { return child * kWindow + k % kWindow; }
  size_t length(size_t k) const { return std::min(segment_, bytes_ - k * segment_); }
  uint32_t buffer(size_t k, bool isDown) const {
    return static_cast<uint32_t>((k * 2 + (isDown ? 1 : 0)) * 2 + number_);
  }
  std::byte* memoryOf(size_t child, size_t k) { return scratch_ + slot(child, k) * segment_; }

  void bindChildren(size_t k) {
    if (k >= segments_) return;
    for (size_t i = 0; i < children_.size(); ++i) {
      arrived_[slot(i, k)] =
          net_.receive(children_[i], buffer(k, false), memoryOf(i, k), length(k));
    }
  }
  bool childrenHaveCome() const {
    for (size_t i = 0; i < children_.size(); ++i) {
      if (!holds(arrived_[slot(i, summed_)])) return false;
    }
    return true;
  }

  void sum() {
    const size_t k = summed_++;
    const std::byte* own = input_ + k * segment_;
    const std::byte* sources[3] = {own};
    for (size_t i = 0; i < children_.size(); ++i) {
      arrived_[slot(i, k)].check();
      sources[i + 1] = memoryOf(i, k);
    }
    const auto count = static_cast<int>(children_.size()) + 1;
    if (isRoot()) {
      reduceFn(c_.op.kind, c_.type)(output_ + k * segment_, sources, count, length(k) / element_,
                                    net_.contributions());
    } else if (!children_.empty()) {
      std::byte* const result = memoryOf(children_.size(), k);
      partialFn(c_)(result, sources, count, length(k) / element_, 0);
      own = result;
    }
    if (!isRoot()) up_[k % kWindow] = net_.send(parent_, buffer(k, false), own, length(k));
    bindChildren(k + kWindow);
  }

  /// The contribution has left: in place, the result may come where it was.
  void bindDown() {
    const size_t k = bound_++;
    if (isRoot()) return;
    up_[k % kWindow].check();
    down_[k] = net_.receive(parent_, buffer(k, true), output_ + k * segment_, length(k));
  }

  void spread() {
    const size_t k = spread_++;
    down_[k].check();
    for (const int child : children_) {
      spreading_.push_back(net_.send(child, buffer(k, true), output_ + k * segment_, length(k)));
    }
  }

  NetContext& net_;
  const Collective& c_;
  const uint32_t number_;  // of the tree
  const size_t element_, segment_, bytes_, segments_;
  const std::byte* const input_;
  std::byte* const output_;
  std::byte* scratch_ = nullptr;
  int parent_ = -1;  // a rank
  std::vector<int> children_;
  std::vector<Arrival> arrived_;  // from each child, of the segments in the window
  std::vector<Dispatch> up_;
  std::vector<Arrival> down_;
  std::vector<Dispatch> spreading_;
  size_t summed_ = 0, bound_ = 0, spread_ = 0;  // segments
};

/// Two binary trees (Sanders, Speck and Träff, 2009), each of one half of the tensor; a rank that
/// passes on data in one is a leaf of the other, so that all ranks send and receive twice the data,
/// in as many steps as a tree is deep, whatever their number. Segments follow each other. A rank
/// has connections to at most six others. Partial sums are passed on.
Task allReduceDoubleBinaryTree(NetContext& net, const Collective& c) {
  const Partition parts(c.count, 2, sizeOf(c.type));
  TensorHalf halves[] = {TensorHalf(net, c, 0, parts.begin(0), parts.size(0)),
                         TensorHalf(net, c, 1, parts.begin(1), parts.size(1))};
  std::byte* const scratch = net.scratch(halves[0].scratchBytes() + halves[1].scratchBytes());
  halves[0].begin(scratch);
  halves[1].begin(scratch + halves[0].scratchBytes());
  std::vector<Condition> conditions;
  while (true) {
    conditions.clear();
    for (TensorHalf& half : halves) {
      half.advance();
      half.addConditions(conditions);
    }
    if (halves[0].done() && halves[1].done()) break;
    co_await Condition::any(conditions.data(), static_cast<int>(conditions.size()));
  }
  for (TensorHalf& half : halves) {
    for (Dispatch& dispatch : half.spreading()) co_await dispatch;
  }
}

double allReduceDoubleBinaryTreeMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const auto segment = static_cast<double>(treeSegmentBytes(q.bytes / 2, 1));
  const double levels = levelsOf(q.size) + 1, segments = std::max(1.0, bytes / 2 / segment);
  return netMicros(
      q, {2 * levels, 2 * levels + 4 * segments, 2 * bytes + 2 * levels * segment, bytes});
}

}  // namespace

namespace algorithms {

Algorithm allReduceNetDoubleBinaryTree() {
  return {.name = "double_binary_tree",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceDoubleBinaryTree,
          .micros = allReduceDoubleBinaryTreeMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
