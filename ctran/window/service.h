#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ctran/engine/communicator.h"
#include "ctran/trace/overlapping_trace.h"
#include "ctran/window/window_signals.h"

namespace ctran {

/// Carries the operations of a window, as messages, to ranks whose memory is not mapped here, and
/// serves the requests of others. It serves on the progress thread, so that the user's threads need
/// not take part. A request is a header; the bytes of a put, or of the answer to a get, follow
/// theirs.
///
/// Where the transport reaches the target's memory, puts and gets go directly. The transport keeps
/// these in order with requests that are sent later. But the target's thread serves a request that
/// was sent before, and that request must not be overtaken: nothing goes directly until an answer
/// has said that no such request is left.
class WindowService : public std::enable_shared_from_this<WindowService> {
 public:
  /// `memory` is what this rank exposes. The communicator belongs to the window alone. `remotes` is
  /// the memory of all ranks, for the transport; empty if there is no transport.
  WindowService(Communicator& communicator, WindowSignals& board, std::span<std::byte> memory,
                size_t signalWords, std::vector<RemoteMemory> remotes);

  /// Starts to listen to every peer.
  void start();

  using WorkPtr = std::shared_ptr<Work>;
  using Timeout = std::chrono::nanoseconds;

  /// The most questions to one rank that it has not answered yet. A rank answers twice as many at a
  /// time, because it learns later than the asking rank that an answer has left.
  static constexpr uint64_t kMaxAsked = 8192;

  /// Move data by the devices of both ends, without the target's help. Return null where those do
  /// not reach. The transfer ends when the data have arrived.
  std::unique_ptr<Transfer> putDirectly(int target, size_t offset,
                                        std::span<const std::byte> source);
  std::unique_ptr<Transfer> getDirectly(int target, size_t offset,
                                        std::span<std::byte> destination);

  /// The work ends when `source` may be used again.
  WorkPtr put(int target, size_t offset, std::span<const std::byte> source, Timeout timeout,
              std::shared_ptr<void> keepAlive);
  /// `number`: of the signal among those to that rank.
  WorkPtr signal(int target, uint64_t number, Timeout timeout);
  WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout);
  /// Asks for bytes or, with an empty destination, whether everything before has been done. The
  /// question is answered when `answers(target)` has reached the returned number. Throws
  /// Error(InvalidArgument) if more than kMaxAsked questions would be open.
  uint64_t ask(int target, size_t offset, std::span<std::byte> destination, Timeout timeout,
               std::shared_ptr<void> keepAlive);
  const std::atomic<uint64_t>& answers(int target) const { return peers_[target].answers; }
  uint64_t asked(int target) const { return peers_[target].asked; }

  /// Tells every peer that nothing more will come, neither requests nor answers.
  void sayGoodbye(Timeout timeout);
  /// Returns the number of peers that have said goodbye.
  const std::atomic<uint64_t>& goodbyes() const { return goodbyes_; }

 private:
  enum class Request : uint64_t { Put, Signal, SetWord, Get, Answer, Goodbye };
  struct Header {
    Request request;
    uint64_t offset;  ///< in the target's memory; for SetWord the number of a word
    uint64_t bytes;
    uint64_t value;
  };
  /// Where the answer to a question is put.
  struct Destination {
    std::span<std::byte> bytes;
    std::shared_ptr<void> keepAlive;
  };
  struct Peer {
    Header incoming;
    std::atomic<uint64_t> answers{0};
    uint64_t asked = 0;
    // Number of the question whose answer says that all puts before it have been done.
    uint64_t settledBy = 0;
    std::atomic<uint64_t> unsent{0};  // number of answers that wait to be sent
    std::mutex mutex;                 // held by the thread that sends; guards what follows
    std::deque<Destination> destinations;
  };

  WorkPtr send(int target, const Header& header, std::span<const std::byte> bytes, Timeout timeout,
               std::shared_ptr<void> keepAlive);
  /// Sends as `send` does, and records it as an operation of the window.
  WorkPtr sendRecorded(CollectiveKind kind, uint64_t number, int target, const Header& header,
                       std::span<const std::byte> bytes, Timeout timeout,
                       std::shared_ptr<void> keepAlive);
  bool reachesDirectly(int target, std::span<const std::byte> local);
  void listen(int peer);
  void handle(int peer);
  void receive(int peer, Destination destination, bool isAnswer);
  void reply(int peer, const Header& question);
  void answer(int peer);
  void count(std::atomic<uint64_t>& counter);
  bool inMemory(const Header& header) const;
  void reject(int peer, const char* why = "a request that makes no sense for its window");

  Communicator& communicator_;
  WindowSignals& board_;
  const std::span<std::byte> memory_;
  const size_t signalWords_;
  const std::vector<RemoteMemory> remotes_;
  std::vector<Peer> peers_;
  std::atomic<uint64_t> goodbyes_{0};
  std::optional<OverlappingTrace> trace_;  // none if nothing is recorded
};

}  // namespace ctran
