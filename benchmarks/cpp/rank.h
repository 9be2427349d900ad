#pragma once

#include <chrono>
#include <concepts>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/cpp/operation.h"

namespace bench {

/// What is to be timed: `prepare` turns a call into whatever the library's caller could keep from
/// one call to the next, `run` is the timed part and returns when this rank's part is done.
template <class L>
concept Library = requires(L& library, const Call& call, const typename L::Prepared& prepared) {
  { library.rank() } -> std::convertible_to<int>;
  { library.size() } -> std::convertible_to<int>;
  { library.prepare(call) } -> std::same_as<typename L::Prepared>;
  library.run(prepared);
};

/// The roofline: what a core needs to copy the buffer while all other ranks do the same.
struct CopyLibrary {
  using Prepared = Call;
  int rank() const { return 0; }
  int size() const { return 1; }
  Prepared prepare(const Call& call) const { return call; }
  void run(const Prepared& call) const {
    std::memcpy(call.output, call.input, call.count * sizeof(float));
  }
};

/// One rank of one library: the same loop for all of them.
template <Library L>
class Rank {
 public:
  explicit Rank(L& library) : library_(library) {}

  /// Runs `op` once on every buffer; throws when a result is wrong. Collective, also for those that
  /// find nothing wrong.
  void check(Op op, size_t bytes) {
    const Shape shape(op, bytes, library_.size());
    allocate(op, bytes, shape);
    if (op == Op::Copy) {
      runAll(copy_, calls(copy_, op, shape));
    } else {
      runAll(library_, calls(library_, op, shape));
    }
    if (op != Op::Barrier) checkResults(op, shape);
  }

  /// Seconds of one call of `op` on this rank: `warmup` and then `iterations` blocking calls back
  /// to back, over several buffers in turn; of send_recv half a round trip, and zero on ranks other
  /// than 0 and 1. Collective.
  double time(Op op, size_t bytes, long warmup, long iterations) {
    const Shape shape(op, bytes, library_.size());
    if (op != op_ || bytes != bytes_) allocate(op, bytes, shape);
    if (op == Op::Copy) return loop(copy_, calls(copy_, op, shape), warmup, iterations);
    return loop(library_, calls(library_, op, shape), warmup, iterations);
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  using Buffer = std::unique_ptr<float[], Free>;

  /// Buffers of one call in the rotation.
  struct Slot {
    Buffer input;
    Buffer output;
  };

  /// Few enough that small messages stay in cache, as a program's buffers do, but not in one line.
  static constexpr size_t kSlots = 4;
  static constexpr size_t kRotationBytes = 128 << 20;

  /// One call of the operation may be several of the library, or on some ranks none.
  template <Library Timed>
  std::vector<typename Timed::Prepared> calls(Timed& timed, Op op, const Shape& shape) {
    std::vector<typename Timed::Prepared> calls;
    for (const Slot& slot : slots_) {
      for (const Call& call : steps(op, shape, slot)) calls.push_back(timed.prepare(call));
    }
    return calls;
  }

  template <Library Timed>
  static void runAll(Timed& timed, const std::vector<typename Timed::Prepared>& calls) {
    for (const auto& call : calls) timed.run(call);
  }

  template <Library Timed>
  double loop(Timed& timed, const std::vector<typename Timed::Prepared>& calls, long warmup,
              long iterations) {
    const long perOperation = long(calls.size() / slots_.size());
    size_t next = 0;
    const auto run = [&](long count) {
      for (long i = 0; i < count; ++i) {
        timed.run(calls[next]);
        if (++next == calls.size()) next = 0;
      }
    };
    run(warmup * perOperation);
    const auto barrier = library_.prepare({Op::Barrier, 0, nullptr, nullptr});
    library_.run(barrier);
    library_.run(barrier);
    const auto begin = std::chrono::steady_clock::now();
    run(iterations * perOperation);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return perOperation == 0 ? 0 : elapsed.count() / double(iterations * perOperation);
  }

  std::vector<Call> steps(Op op, const Shape& shape, const Slot& slot) const {
    const float* input = slot.input.get();
    float* output = slot.output.get();
    if (op != Op::SendRecv) return {{op, shape.count, input, output}};
    const int rank = library_.rank();
    const Call send{Op::Send, shape.count, input, nullptr, 1 - rank};
    const Call recv{Op::Recv, shape.count, nullptr, output, 1 - rank};
    if (rank == 0) return {send, recv};
    if (rank == 1) return {recv, send};
    return {};
  }

  void allocate(Op op, size_t bytes, const Shape& shape) {
    slots_.clear();
    op_ = op;
    bytes_ = bytes;
    const size_t count = std::clamp<size_t>(kRotationBytes / std::max<size_t>(1, bytes), 2, kSlots);
    for (size_t s = 0; s < count; ++s) {
      Slot slot{buffer(shape.inputBlocks * shape.count), buffer(shape.outputBlocks * shape.count)};
      for (size_t i = 0; i < shape.inputBlocks * shape.count; ++i) {
        slot.input[i] = inputElement(library_.rank(), i);
      }
      const bool source = op == Op::Broadcast && library_.rank() == 0;
      for (size_t i = 0; i < shape.outputBlocks * shape.count; ++i) {
        slot.output[i] = source ? inputElement(0, i) : std::numeric_limits<float>::quiet_NaN();
      }
      slots_.push_back(std::move(slot));
    }
  }

  static Buffer buffer(size_t elements) {
    constexpr size_t kPage = 4096;
    const size_t bytes = (elements * sizeof(float) + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, bytes);
    if (!memory) throw std::bad_alloc();
    return Buffer(static_cast<float*>(memory));
  }

  void checkResults(Op op, const Shape& shape) const {
    for (const Slot& slot : slots_) {
      for (size_t i = 0; i < shape.outputBlocks * shape.count; ++i) {
        const auto expected = expectedElement(op, library_.rank(), library_.size(), shape.count, i);
        if (!expected || slot.output[i] == *expected) continue;
        std::ostringstream message;
        message << "wrong result of " << info(op).name << " with blocks of " << shape.count
                << ": element " << i << " on rank " << library_.rank() << " is " << slot.output[i]
                << ", not " << *expected;
        throw std::runtime_error(message.str());
      }
    }
  }

  L& library_;
  CopyLibrary copy_;
  Op op_ = Op::Barrier;
  size_t bytes_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace bench
