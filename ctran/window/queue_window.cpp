#include "ctran/window/queue_window.h"

#include <cstring>
#include <numeric>

#include "ctran/base/error.h"

namespace ctran {
namespace {

WaitQueue* addWaitQueue(Communicator& communicator, WindowSignals& board) {
  return static_cast<WaitQueue*>(
      &communicator.addQueue(std::make_unique<WaitQueue>(communicator.core(), board)));
}

void requireData(const void* data, const char* whatIsNull) {
  if (data == nullptr) throw Error(ErrorKind::InvalidArgument, whatIsNull);
}

}  // namespace

QueueWindow::QueueWindow(std::shared_ptr<Communicator> communicator, std::vector<Region> regions,
                         WindowSignals board, std::span<std::byte> memory, bool served,
                         Registered registered)
    : communicator_(std::move(communicator)),
      registration_(std::move(registered.own)),
      regions_(std::move(regions)),
      board_(std::move(board)),
      signalled_(regions_.size()),
      waited_(regions_.size()),
      trace_(communicator_->core()) {
  for (int r = 0; r < size(); ++r) {
    signalQueues_.push_back(addWaitQueue(*communicator_, board_));
    answerQueues_.push_back(addWaitQueue(*communicator_, board_));
    transferQueues_.push_back(addWaitQueue(*communicator_, board_));
  }
  wordQueue_ = addWaitQueue(*communicator_, board_);
  if (!served) return;
  service_ = std::make_shared<WindowService>(
      *communicator_, board_, memory, region(rank()).signalWords, std::move(registered.remotes));
  service_->start();
}

QueueWindow::~QueueWindow() {
  if (closed_ || !communicator_->core().belongsHere()) return;
  if (service_) {
    // No rank may write to memory that its owner is about to free.
    communicator_->abort("rank " + std::to_string(rank()) + " destroyed its window");
    while (!communicator_->idle()) communicator_->progress();
  }
  communicator_->leave();
}

const QueueWindow::Region& QueueWindow::region(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorKind::InvalidArgument, "window: rank " + std::to_string(rank) +
                                                " is not in [0, " + std::to_string(size()) + ")");
  }
  return regions_[rank];
}

/// What every operation that names a rank starts with.
void QueueWindow::begin(int rank) const {
  region(rank);
  if (closed_) throw Error(ErrorKind::InvalidArgument, "the window is closed");
  if (!communicator_->core().belongsHere()) throw communicator_->core().forkError();
  communicator_->core().throwIfFailed();
}

/// What every operation on that range starts with.
void QueueWindow::checkRange(int target, size_t offset, size_t bytes, const char* what) const {
  begin(target);
  const Region& memory = region(target);
  if (offset > memory.bytes || bytes > memory.bytes - offset) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(what) + ": bytes [" + std::to_string(offset) + ", " +
                    std::to_string(offset + bytes) + ") are not inside the window of rank " +
                    std::to_string(target) + ", which has " + std::to_string(memory.bytes) +
                    " bytes",
                {target}, what);
  }
}

void QueueWindow::checkWord(int rank, size_t word) const {
  begin(rank);
  if (word >= signalWords(rank)) {
    throw Error(ErrorKind::InvalidArgument,
                "signal " + std::to_string(word) + " does not exist: rank " + std::to_string(rank) +
                    " has " + std::to_string(signalWords(rank)),
                {rank}, "signal");
  }
}

Window::WorkPtr QueueWindow::put(int target, size_t offset, std::span<const std::byte> source,
                                 Timeout timeout, std::shared_ptr<void> keepAlive) {
  checkRange(target, offset, source.size(), "put");
  if (source.empty()) return nullptr;
  requireData(source.data(), "put: the source is null");
  const Region& memory = region(target);
  const Call call{CollectiveKind::Put, target, source.size()};
  if (!memory.direct) {
    if (auto transfer = service_->putDirectly(target, offset, source)) {
      return awaitTransfer(std::move(transfer), call, timeout, std::move(keepAlive));
    }
    return service_->put(target, offset, source, timeout, std::move(keepAlive));
  }
  atOnce(call, [&] { std::memmove(memory.mapped.get() + offset, source.data(), source.size()); });
  return nullptr;
}

Window::WorkPtr QueueWindow::get(int target, size_t offset, std::span<std::byte> destination,
                                 Timeout timeout, std::shared_ptr<void> keepAlive) {
  checkRange(target, offset, destination.size(), "get");
  if (destination.empty()) return nullptr;
  requireData(destination.data(), "get: the destination is null");
  const Region& memory = region(target);
  const Call call{CollectiveKind::Get, target, destination.size()};
  if (!memory.direct) {
    if (auto transfer = service_->getDirectly(target, offset, destination)) {
      return awaitTransfer(std::move(transfer), call, timeout, std::move(keepAlive));
    }
    return awaitAnswer(
        call, service_->ask(target, offset, destination, timeout, std::move(keepAlive)), timeout);
  }
  atOnce(call, [&] {
    std::memmove(destination.data(), memory.mapped.get() + offset, destination.size());
  });
  return nullptr;
}

Window::WorkPtr QueueWindow::flush(int target, Timeout timeout) {
  begin(target);
  const Call call{CollectiveKind::Flush, target};
  if (region(target).direct) {
    atOnce(call, [] {});
    return nullptr;
  }
  return awaitAnswer(call, service_->ask(target, 0, {}, timeout, nullptr), timeout);
}

Window::WorkPtr QueueWindow::awaitAnswer(const Call& call, uint64_t number, Timeout timeout) {
  const int target = call.peer;
  const std::atomic<uint64_t>& answers = service_->answers(target);
  return wait(*answerQueues_[target], call,
              {{reinterpret_cast<const std::byte*>(&answers), 0, number, target, target + 1},
               "the answer of rank " + std::to_string(target)},
              timeout);
}

Window::WorkPtr QueueWindow::awaitTransfer(std::unique_ptr<Transfer> transfer, const Call& call,
                                           Timeout timeout, std::shared_ptr<void> keepAlive) {
  /// Held until the transfer has ended, or the work has failed. Members are destroyed in the
  /// reverse order.
  struct Held {
    std::shared_ptr<Communicator> communicator;
    std::shared_ptr<void> keepAlive;
    std::unique_ptr<Transfer> transfer;
  };
  const Condition ended = transfer->ended();
  if (Condition now = ended; now.holds()) {
    atOnce(call, [] {});
    return nullptr;
  }
  auto held =
      std::make_shared<Held>(Held{communicator_, std::move(keepAlive), std::move(transfer)});
  const char* const what = call.kind == CollectiveKind::Put ? "a put to rank " : "a get from rank ";
  return wait(*transferQueues_[call.peer], call, {ended, what + std::to_string(call.peer)}, timeout,
              std::move(held));
}

Window::WorkPtr QueueWindow::signal(int target, Timeout timeout) {
  begin(target);
  const uint64_t number = ++signalled_[target];
  if (!region(target).direct) return service_->signal(target, number, timeout);
  atOnce({CollectiveKind::Signal, target, 0, number}, [&] {
    board_.add(target, rank());
    communicator_->core().published();
  });
  return nullptr;
}

Window::WorkPtr QueueWindow::setWord(int target, size_t word, uint64_t value, Timeout timeout) {
  checkWord(target, word);
  if (!region(target).direct) return service_->setWord(target, word, value, timeout);
  atOnce({CollectiveKind::Signal, target, word + 1}, [&] {
    board_.set(target, word, value);
    communicator_->core().published();
  });
  return nullptr;
}

Window::WorkPtr QueueWindow::waitSignal(int origin, Timeout timeout) {
  begin(origin);
  const std::atomic<uint64_t>& count = board_.count(rank(), origin);
  const uint64_t wanted = ++waited_[origin];
  const Call call{CollectiveKind::WaitSignal, origin, 0, wanted};
  WaitQueue& queue = *signalQueues_[origin];
  if (queue.idle() && count.load(std::memory_order_acquire) >= wanted) {
    atOnce(call, [] {});
    return nullptr;
  }
  return wait(queue, call,
              {{reinterpret_cast<const std::byte*>(&count), 0, wanted, origin, origin + 1},
               "a signal from rank " + std::to_string(origin)},
              timeout);
}

Window::WorkPtr QueueWindow::waitWord(size_t word, Comparison comparison, uint64_t value,
                                      Timeout timeout) {
  checkWord(rank(), word);
  if (comparison > Comparison::GreaterEqual) {
    throw Error(ErrorKind::InvalidArgument, "wait_signal: there is no such comparison");
  }
  const Call call{CollectiveKind::WaitSignal, kAnyRank, word + 1};
  const uint64_t now = board_.word(rank(), word).load(std::memory_order_acquire);
  if (wordQueue_->idle() && compare(now, comparison, value)) {
    atOnce(call, [] {});
    return nullptr;
  }
  const std::string what = "signal " + std::to_string(word) + " " +
                           std::string(nameOf(comparison)) + " " + std::to_string(value);
  return wait(*wordQueue_, call, {{}, what, word, comparison, value}, timeout);
}

Window::WorkPtr QueueWindow::wait(WaitQueue& queue, const Call& call, WindowWait what,
                                  Timeout timeout, std::shared_ptr<void> keepAlive) {
  Collective c;
  c.kind = call.kind;
  c.root = call.peer;
  c.count = call.count;
  c.tag = static_cast<int>(windowTag(0, call.number));
  queue.expect(std::move(what));
  return communicator_->submit(queue, std::move(c), timeout, std::move(keepAlive), /*lazily=*/true);
}

void QueueWindow::close(WaitHooks* hooks) {
  if (closed_) return;
  begin(rank());
  for (int target = 0; service_ && target < size(); ++target) {
    if (target == rank()) continue;
    finish(awaitAnswer({CollectiveKind::Flush, target}, service_->asked(target), {}), hooks);
  }
  communicator_->run({}, {}, hooks);  // from here on no rank asks or answers
  if (service_) {
    service_->sayGoodbye({});
    const auto peers = static_cast<uint64_t>(size() - 1);
    finish(wait(*wordQueue_, {CollectiveKind::WaitSignal, kAnyRank},
                {Condition::ofAnybody(service_->goodbyes(), peers), "everybody's goodbye"}, {}),
           hooks);
  }
  closed_ = true;
  communicator_->finalize(hooks);
}

}  // namespace ctran
