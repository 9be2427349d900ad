#include "ctran/transport/board.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "ctran/base/clock.h"
#include "ctran/base/text.h"
#include "ctran/os/futex.h"
#include "ctran/os/process_barrier.h"

namespace ctran {
namespace {

constexpr int kFewSharers = 4;

}  // namespace

Board::Board(std::shared_ptr<SharedMapping> memory, size_t offset, int rank, int size,
             const std::vector<int>& sharers)
    : memory_(std::move(memory)),
      base_(memory_->data() + offset),
      rank_(rank),
      size_(size),
      shared_(false),
      sharers_(sharers),
      own_(sharedBy(rank)),
      heard_(std::make_unique<PerRank<Control>>(size)) {}

Board::Board(std::shared_ptr<SharedMapping> memory, int rank, int size, bool shared)
    : memory_(std::move(memory)),
      base_(memory_->data()),
      rank_(rank),
      size_(size),
      shared_(shared) {
  if (!shared) {
    sharers_ = {rank};
    own_ = sharedBy(rank);
    heard_ = std::make_unique<PerRank<Control>>(size);
  }
  // A barrier for all interrupts the cores of all. With many ranks that would cost more than their
  // fences do, in virtual machines hundreds of microseconds, while others wait and then do the
  // same.
  if (size_ > kFewSharers || !joinProcessBarriers()) {
    header().fences.store(1, std::memory_order_seq_cst);
  }
}

Board::Control* Board::sharedBy(int rank) const {
  const auto found = std::lower_bound(sharers_.begin(), sharers_.end(), rank);
  if (found == sharers_.end() || *found != rank) return nullptr;
  return at<Control>(kHeaderBytes + static_cast<size_t>(found - sharers_.begin()) * kControlBytes);
}

Board::Control& Board::controlOf(int rank) {
  Control* const shared = sharedBy(rank);
  return shared != nullptr ? *shared : heard_->get(rank);
}

Board::Control* Board::find(int rank) {
  if (heard_ == nullptr) return &control(rank);
  Control* const shared = sharedBy(rank);
  return shared != nullptr ? shared : heard_->find(rank);
}

std::vector<int> Board::known() const {
  std::vector<int> ranks = sharers_;
  if (heard_ == nullptr) {
    for (int r = 0; r < size_; ++r) ranks.push_back(r);
  } else {
    heard_->forEach([&](int rank, const Control&) { ranks.push_back(rank); });
    std::sort(ranks.begin(), ranks.end());
  }
  return ranks;
}

bool Board::isShared(int rank) const { return shared_ || sharedBy(rank) != nullptr; }

uint32_t Board::prepareSleep(int awaited) {
  Control& own = control(rank_);
  const uint32_t ticket = own.doorbell.load(std::memory_order_acquire);
  own.awaited.store(awaited, std::memory_order_relaxed);
  header().sleepers.fetch_or(sleeperBit(rank_), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see published()
  if (header().fences.load(std::memory_order_relaxed) == 0) processBarrier();
  return ticket;
}

void Board::wake(int rank) {
  const uint64_t bit = sleeperBit(rank);
  if ((header().sleepers.load(std::memory_order_seq_cst) & bit) == 0) return;
  // The thread that takes the bit makes the system call; a sleeper that still has to wait sets it
  // again.
  if ((header().sleepers.fetch_and(~bit, std::memory_order_seq_cst) & bit) == 0) return;
  ring(rank);
}

void Board::ring(int rank) {
  control(rank).doorbell.fetch_add(1, std::memory_order_release);
  futexWake(control(rank).doorbell);
}

void Board::wakeAll() {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see published()
  if (!shared_) return ring(rank_);
  for (int r = 0; r < size_; ++r) ring(r);
}

void Board::wakeSleepers(int publisher) {
  uint64_t sleepers = header().sleepers.load(std::memory_order_acquire);
  for (; sleepers != 0; sleepers &= sleepers - 1) {
    const int r = shared_ ? std::countr_zero(sleepers) : rank_;
    const int awaited = control(r).awaited.load(std::memory_order_relaxed);
    if (awaited < 0 || awaited == publisher) wake(r);
  }
}

bool Board::fail(const Error& error) {
  Failure& failure = header().failure;
  const auto take = [&](uint32_t state) {
    return failure.state.compare_exchange_strong(state, Failure::kWriting + rank_,
                                                 std::memory_order_acq_rel);
  };
  bool first = take(Failure::kNone);
  // A rank that was killed while it wrote is finished for by those who report its death.
  for (const int r : error.ranks()) {
    if (first || error.kind() != ErrorKind::PeerLost || r == rank_) break;
    if (r < 0 || r >= size_) continue;  // of no rank, nor a state of one that writes
    first = take(Failure::kWriting + static_cast<uint32_t>(r));
  }
  if (first) {
    failure.kind = static_cast<int32_t>(error.kind());
    failure.reporter = rank_;
    failure.rankCount = static_cast<int32_t>(std::min<size_t>(error.ranks().size(), kMaxSharers));
    std::copy_n(error.ranks().begin(), failure.rankCount, failure.ranks);
    copyText(failure.op, error.op());
    copyText(failure.hint, error.hint());
    copyText(failure.message, error.message());
    failure.state.store(Failure::kReadable, std::memory_order_release);
  }
  wakeAll();
  return first;
}

void Board::throwFailure() const {
  const Failure& failure = header().failure;
  // The writer copies a few kilobytes. If it was killed there, its death is reported in a moment.
  const int64_t giveUp = nowNanos() + 1'000'000'000;
  while (failure.state.load(std::memory_order_acquire) != Failure::kReadable) {
    if (nowNanos() > giveUp) {
      throw Error(ErrorKind::Aborted, "the communicator broke, and nobody could say why");
    }
    std::this_thread::yield();
  }
  std::string message = failure.message;
  // The message of a failure that has come from another host already says so.
  if (failure.reporter != rank_ && message.find("\n  (reported by rank ") == std::string::npos) {
    message += "\n  (reported by rank " + std::to_string(failure.reporter) + ", raised on rank " +
               std::to_string(rank_) + ")";
  }
  throw Error(static_cast<ErrorKind>(failure.kind), message,
              {failure.ranks, failure.ranks + failure.rankCount}, failure.op, failure.hint);
}

}  // namespace ctran
