#include "ctran/collective/in_place.h"

#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/overlap.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

[[noreturn]] void reject(const Collective& c, const MemoryRange& input, const MemoryRange& output,
                         const char* hint) {
  throw Error(ErrorKind::InvalidArgument,
              std::string(nameOf(c.kind)) + ": the input, " + nameOf(input) +
                  ", overlaps the output, " + nameOf(output),
              {}, c.describe(), hint);
}

constexpr const char* kSame = "in place, both begin at the same address";
constexpr const char* kPart =
    "in place, the smaller one is this rank's block of the larger one, whatever the rank";
constexpr const char* kBlocks =
    "in place, a block of the input begins where the output's block of the same rank does";
constexpr const char* kApart = "use different memory for input and output";

class Check {
 public:
  Check(const Collective& c, int rank, int size)
      : c_(c), rank_(rank), size_(size), element_(sizeOf(c.type)) {}

  void same() const {
    const MemoryRange input{c_.input, c_.blockBytes()}, output{c_.output, c_.blockBytes()};
    if (c_.input != c_.output && overlap(input, output)) reject(c_, input, output, kSame);
  }

  /// The input is a block of the outputs.
  void gathers() const {
    isBlockOf({c_.input, c_.blockBytes()}, c_.output, c_.outputs,
              [this](const MemoryRange& part, const MemoryRange& whole) {
                reject(c_, part, whole, kPart);
              });
  }

  /// The output is a block of the inputs.
  void scatters() const {
    isBlockOf({c_.output, c_.blockBytes()}, c_.input, c_.inputs,
              [this](const MemoryRange& part, const MemoryRange& whole) {
                reject(c_, whole, part, kPart);
              });
  }

  void exchanges() const {
    if (c_.inputs.empty() && c_.outputs.empty()) {
      const size_t bytes = c_.blockBytes() * static_cast<size_t>(size_);
      const MemoryRange input{c_.input, bytes}, output{c_.output, bytes};
      if (c_.input != c_.output && overlap(input, output)) reject(c_, input, output, kSame);
      return;
    }
    bool ascending = true;
    MemoryRange lastInput, lastOutput;
    for (int r = 0; r < size_; ++r) {
      const MemoryRange input = range(c_.inputBlock(r)), output = range(c_.outputBlock(r));
      compare(r, input, r, output);
      ascending &= follows(lastInput, input) && follows(lastOutput, output);
    }
    if (ascending) inOrder();
  }

  void moves(size_t inputRows, size_t outputRows) const {
    const MemoryRange input{c_.input, inputRows * c_.blockBytes()};
    if (c_.outputs.empty()) {
      const MemoryRange output{c_.output, outputRows * c_.blockBytes()};
      if (overlap(input, output)) reject(c_, input, output, kApart);
    }
    for (const Block& block : c_.outputs) {
      const MemoryRange output = range(block);
      if (overlap(input, output)) reject(c_, input, output, kApart);
    }
  }

 private:
  MemoryRange range(const Block& block) const { return {block.data, block.count * element_}; }

  /// Calls `refuse(part, whole)` unless `part` is this rank's block of the other side, or apart.
  template <class Refuse>
  void isBlockOf(const MemoryRange& part, const std::byte* data, const std::vector<Block>& listed,
                 const Refuse& refuse) const {
    if (listed.empty()) {
      const size_t block = c_.blockBytes();
      const MemoryRange whole{data, block * static_cast<size_t>(size_)};
      const bool isOwn = part.data == data + static_cast<size_t>(rank_) * block;
      if (overlap(part, whole) && !isOwn) refuse(part, whole);
      return;
    }
    for (int r = 0; r < size_; ++r) {
      const MemoryRange whole = range(listed[static_cast<size_t>(r)]);
      const bool isOwn = r == rank_ && part.data == whole.data;
      if (overlap(part, whole) && !isOwn) refuse(part, whole);
    }
  }

  void compare(int i, const MemoryRange& input, int j, const MemoryRange& output) const {
    if (!overlap(input, output) || (i == j && input.data == output.data)) return;
    reject(c_, input, output, kBlocks);
  }

  /// Whether the next one is not empty, so that it takes the place of the last one, and neither
  /// begins nor ends before that.
  static bool follows(MemoryRange& last, const MemoryRange& next) {
    if (next.bytes == 0) return true;
    const bool is = last.begin() <= next.begin() && last.end() <= next.end();
    last = next;
    return is;
  }

  /// Of two lists in ascending order: passes on in the one whose block ends first.
  void inOrder() const {
    for (int i = 0, j = 0; i < size_ && j < size_;) {
      const MemoryRange input = range(c_.inputBlock(i)), output = range(c_.outputBlock(j));
      if (input.bytes != 0 && output.bytes != 0) compare(i, input, j, output);
      if (output.bytes != 0 && (input.bytes == 0 || input.end() <= output.end())) {
        ++i;
      } else {
        ++j;
      }
    }
  }

  const Collective& c_;
  const int rank_, size_;
  const size_t element_;
};

}  // namespace

void checkInPlace(const Collective& c, int rank, int size) {
  const Check check(c, rank, size);
  switch (c.kind) {
    case Kind::AllReduce:
      return check.same();
    case Kind::Reduce:
      if (rank == c.root) check.same();
      return;
    case Kind::Gather:
      if (rank == c.root) check.gathers();
      return;
    case Kind::AllGather:
    case Kind::AllGatherV:
      return check.gathers();
    case Kind::Scatter:
      if (rank == c.root) check.scatters();
      return;
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      return check.scatters();
    case Kind::AllToAll:
    case Kind::AllToAllV:
      return check.exchanges();
    case Kind::AllToAllVDynamic:
    case Kind::AllToAllVCombine:
      return check.moves(c.rows->inputRows, c.rows->outputRows);
    case Kind::Barrier:
    case Kind::Broadcast:
    case Kind::Send:
    case Kind::Recv:
    case Kind::WaitSignal:
    case Kind::Put:
    case Kind::Get:
    case Kind::Flush:
    case Kind::Signal:
      return;
  }
}

}  // namespace ctran
