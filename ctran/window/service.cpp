#include "ctran/window/service.h"

#include <exception>
#include <string>

#include "ctran/base/checked.h"
#include "ctran/collective/signature.h"

namespace ctran {
namespace {

/// Longer than any program runs: a service waits for its next request without a deadline.
constexpr std::chrono::nanoseconds kNoDeadline{100'000'000'000'000'000};

Collective message(CollectiveKind kind, int peer, size_t bytes) {
  Collective c;
  c.kind = kind;
  c.type = DataType::Opaque1;
  c.root = peer;
  c.count = bytes;
  return c;
}

}  // namespace

WindowService::WindowService(Communicator& communicator, WindowSignals& board,
                             std::span<std::byte> memory, size_t signalWords,
                             std::vector<RemoteMemory> remotes)
    : communicator_(communicator),
      board_(board),
      memory_(memory),
      signalWords_(signalWords),
      remotes_(std::move(remotes)),
      peers_(communicator.size()) {
  if (communicator.core().recording != nullptr) trace_.emplace(*communicator.core().recording);
}

void WindowService::start() {
  communicator_.serve();
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (peer == communicator_.rank()) continue;
    // Made here, as several threads will use them.
    communicator_.messageQueue(peer, true).recordNothing();
    communicator_.messageQueue(peer, false).recordNothing();
  }
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (peer != communicator_.rank()) listen(peer);
  }
}

WindowService::WorkPtr WindowService::send(int target, const Header& header,
                                           std::span<const std::byte> bytes, Timeout timeout,
                                           std::shared_ptr<void> keepAlive) {
  OperationQueue& queue = communicator_.messageQueue(target, true);
  const auto copy = std::make_shared<Header>(header);
  Collective first = message(CollectiveKind::Send, target, sizeof header);
  first.input = reinterpret_cast<const std::byte*>(copy.get());
  // Nothing may come between a header and its bytes; the progress thread sends, too.
  std::lock_guard lock(peers_[target].mutex);
  if (bytes.empty()) return communicator_.submit(queue, std::move(first), timeout, copy);
  communicator_.submit(queue, std::move(first), timeout, copy);
  Collective second = message(CollectiveKind::Send, target, bytes.size());
  second.input = bytes.data();
  return communicator_.submit(queue, std::move(second), timeout, std::move(keepAlive));
}

WindowService::WorkPtr WindowService::sendRecorded(CollectiveKind kind, uint64_t number, int target,
                                                   const Header& header,
                                                   std::span<const std::byte> bytes,
                                                   Timeout timeout,
                                                   std::shared_ptr<void> keepAlive) {
  if (!trace_) return send(target, header, bytes, timeout, std::move(keepAlive));
  const uint64_t count = header.request == Request::SetWord ? header.offset + 1 : bytes.size();
  const auto entry = trace_->begin(/*isMessage=*/true, makeWindowRecord(kind, target, count),
                                   bytes.size(), windowTag(0, number), 0);
  WorkPtr work;
  try {
    work = send(target, header, bytes, timeout, std::move(keepAlive));
  } catch (const Error& error) {
    trace_->failed(entry, static_cast<int>(error.kind()));
    throw;
  }
  work->onDone([self = weak_from_this(), entry, operation = work.get()] {
    const auto service = self.lock();
    if (!service) return;
    try {
      if (const std::exception_ptr error = operation->error()) std::rethrow_exception(error);
      service->trace_->ended(entry);
    } catch (const Error& error) {
      service->trace_->failed(entry, static_cast<int>(error.kind()));
    }
  });
  return work;
}

/// Returns whether the target's memory can be used directly now.
bool WindowService::reachesDirectly(int target, std::span<const std::byte> local) {
  if (remotes_.empty() || !communicator_.transport()->reaches(target, remotes_[target], local)) {
    return false;
  }
  Peer& peer = peers_[target];
  const uint64_t answered = peer.answers.load(std::memory_order_acquire);
  if (answered >= peer.asked && answered >= peer.settledBy) return true;
  if (answered >= peer.asked) ask(target, 0, {}, {}, nullptr);  // for the next time
  return false;
}

std::unique_ptr<Transfer> WindowService::putDirectly(int target, size_t offset,
                                                     std::span<const std::byte> source) {
  if (!reachesDirectly(target, source)) return nullptr;
  return communicator_.transport()->put(target, remotes_[target], offset, source);
}

std::unique_ptr<Transfer> WindowService::getDirectly(int target, size_t offset,
                                                     std::span<std::byte> destination) {
  if (!reachesDirectly(target, destination)) return nullptr;
  return communicator_.transport()->get(target, remotes_[target], offset, destination);
}

WindowService::WorkPtr WindowService::put(int target, size_t offset,
                                          std::span<const std::byte> source, Timeout timeout,
                                          std::shared_ptr<void> keepAlive) {
  peers_[target].settledBy = peers_[target].asked + 1;
  return sendRecorded(CollectiveKind::Put, 0, target, {Request::Put, offset, source.size(), 0},
                      source, timeout, std::move(keepAlive));
}

WindowService::WorkPtr WindowService::signal(int target, uint64_t number, Timeout timeout) {
  return sendRecorded(CollectiveKind::Signal, number, target, {Request::Signal, 0, 0, 0}, {},
                      timeout, nullptr);
}

WindowService::WorkPtr WindowService::setWord(int target, size_t word, uint64_t value,
                                              Timeout timeout) {
  return sendRecorded(CollectiveKind::Signal, 0, target, {Request::SetWord, word, 0, value}, {},
                      timeout, nullptr);
}

uint64_t WindowService::ask(int target, size_t offset, std::span<std::byte> destination,
                            Timeout timeout, std::shared_ptr<void> keepAlive) {
  Peer& peer = peers_[target];
  if (peer.asked - peer.answers.load(std::memory_order_acquire) >= kMaxAsked) {
    throw Error(ErrorKind::InvalidArgument,
                "rank " + std::to_string(target) + " has " + std::to_string(kMaxAsked) +
                    " gets and flushes of this rank to answer, and takes no more",
                {target}, "get", "wait for some of them first");
  }
  {
    std::lock_guard lock(peer.mutex);
    peer.destinations.push_back({destination, std::move(keepAlive)});
  }
  send(target, {Request::Get, offset, destination.size(), 0}, {}, timeout, nullptr);
  return ++peer.asked;
}

void WindowService::sayGoodbye(Timeout timeout) {
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (peer != communicator_.rank()) send(peer, {Request::Goodbye, 0, 0, 0}, {}, timeout, nullptr);
  }
}

void WindowService::listen(int peer) {
  Collective next = message(CollectiveKind::Recv, peer, sizeof(Header));
  next.output = reinterpret_cast<std::byte*>(&peers_[peer].incoming);
  const auto work =
      communicator_.submit(communicator_.messageQueue(peer, false), std::move(next), kNoDeadline);
  work->onDone([self = weak_from_this(), peer, operation = work.get()] {
    const auto service = self.lock();
    if (service && operation->state() == WorkState::Completed) service->handle(peer);
  });
}

/// A request has come. Runs as a callback; whatever is started here goes on by itself.
void WindowService::handle(int peer) {
  try {
    const Header header = peers_[peer].incoming;
    switch (header.request) {
      case Request::Put:
        if (!inMemory(header)) return reject(peer);
        return receive(peer, {memory_.subspan(header.offset, header.bytes), nullptr}, false);
      case Request::Signal:
        board_.add(communicator_.rank(), peer);
        communicator_.core().wakeOwn();
        return listen(peer);
      case Request::SetWord:
        if (header.offset >= signalWords_) return reject(peer);
        board_.set(communicator_.rank(), header.offset, header.value);
        communicator_.core().wakeOwn();
        return listen(peer);
      case Request::Get:
        if (!inMemory(header)) return reject(peer);
        if (peers_[peer].unsent.load(std::memory_order_acquire) >= 2 * kMaxAsked) {
          return reject(peer, "more gets, and takes no answers");
        }
        reply(peer, header);
        return listen(peer);
      case Request::Answer:
        return answer(peer);
      case Request::Goodbye:
        return count(goodbyes_);
    }
    reject(peer);
  } catch (const Error&) {
    // The window is broken; every later operation says why.
  } catch (...) {
    communicator_.core().failCaughtHere("a request to its window");
  }
}

void WindowService::reply(int peer, const Header& question) {
  peers_[peer].unsent.fetch_add(1, std::memory_order_relaxed);
  const auto work = send(peer, {Request::Answer, 0, question.bytes, 0},
                         memory_.subspan(question.offset, question.bytes), {}, nullptr);
  work->onDone([self = weak_from_this(), peer] {
    if (const auto service = self.lock()) {
      service->peers_[peer].unsent.fetch_sub(1, std::memory_order_release);
    }
  });
}

void WindowService::answer(int peer) {
  Destination destination;
  {
    std::lock_guard lock(peers_[peer].mutex);
    std::deque<Destination>& waiting = peers_[peer].destinations;
    if (waiting.empty() || waiting.front().bytes.size() != peers_[peer].incoming.bytes) {
      return reject(peer);
    }
    destination = std::move(waiting.front());
    waiting.pop_front();
  }
  receive(peer, std::move(destination), true);
}

void WindowService::receive(int peer, Destination destination, bool isAnswer) {
  if (destination.bytes.empty()) {
    if (isAnswer) count(peers_[peer].answers);
    return listen(peer);
  }
  Collective bytes = message(CollectiveKind::Recv, peer, destination.bytes.size());
  bytes.output = destination.bytes.data();
  const auto work = communicator_.submit(communicator_.messageQueue(peer, false), std::move(bytes),
                                         kNoDeadline, std::move(destination.keepAlive));
  work->onDone([self = weak_from_this(), peer, isAnswer, operation = work.get()] {
    const auto service = self.lock();
    if (!service || operation->state() != WorkState::Completed) return;
    try {
      if (isAnswer) service->count(service->peers_[peer].answers);
      service->listen(peer);
    } catch (const Error&) {
      // See `handle`.
    }
  });
}

void WindowService::count(std::atomic<uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_seq_cst);
  communicator_.core().wakeOwn();
}

bool WindowService::inMemory(const Header& header) const {
  return isInside(header.offset, header.bytes, memory_.size());
}

void WindowService::reject(int peer, const char* why) {
  communicator_.core().fail(Error(ErrorKind::System,
                                  "rank " + std::to_string(peer) + " sent rank " +
                                      std::to_string(communicator_.rank()) + " " + why,
                                  {peer}));
  communicator_.core().wakeOwn();
}

}  // namespace ctran
