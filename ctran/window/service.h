#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ctran/engine/communicator.h"
#include "ctran/window/window_signals.h"

namespace ctran {

/// Carries the operations of a window to ranks whose memory is not mapped here, as messages, and
/// serves those that others send: on the progress thread, so that the user's threads need not take
/// part. One request is a header; a put and the answer to a get are followed by their bytes.
///
/// Where the transport reaches the target's memory, puts and gets go directly. The transport keeps
/// the order of these and of requests that are sent later. A request that was sent before is done
/// by the target's thread, and must not be overtaken: nothing goes directly until an answer has
/// said that there is none left.
class WindowService : public std::enable_shared_from_this<WindowService> {
 public:
  /// `memory` is what this rank exposes. The communicator belongs to the window alone. `remotes`:
  /// the memory of all ranks, for the transport; none if there is no transport.
  WindowService(Communicator& communicator, WindowSignals& board, std::span<std::byte> memory,
                size_t signalWords, std::vector<RemoteMemory> remotes);

  /// Listens to every peer from now on.
  void start();

  using WorkPtr = std::shared_ptr<Work>;
  using Timeout = std::chrono::nanoseconds;

  /// Questions to a rank that it has not answered yet, at most. Whoever is asked answers twice as
  /// many at a time, as it learns later than the other that an answer has left.
  static constexpr uint64_t kMaxAsked = 8192;

  /// By the devices of both ends, without the target's help; null where they do not reach. Ends
  /// when the data are there.
  std::unique_ptr<Transfer> putDirectly(int target, size_t offset,
                                        std::span<const std::byte> source);
  std::unique_ptr<Transfer> getDirectly(int target, size_t offset,
                                        std::span<std::byte> destination);

  /// The work ends when `source` may be used again.
  WorkPtr put(int target, size_t offset, std::span<const std::byte> source, Timeout timeout,
              std::shared_ptr<void> keepAlive);
  WorkPtr signal(int target, Timeout timeout);
  WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout);
  /// Asks for bytes, or with an empty destination that everything before has been done; answered
  /// when `answers(target)` has reached the returned number. Throws Error(InvalidArgument) if more
  /// than kMaxAsked would be open.
  uint64_t ask(int target, size_t offset, std::span<std::byte> destination, Timeout timeout,
               std::shared_ptr<void> keepAlive);
  const std::atomic<uint64_t>& answers(int target) const { return peers_[target].answers; }
  uint64_t asked(int target) const { return peers_[target].asked; }

  /// Tells every peer that nothing more will come, neither requests nor answers.
  void sayGoodbye(Timeout timeout);
  /// How many peers have said so.
  const std::atomic<uint64_t>& goodbyes() const { return goodbyes_; }

 private:
  enum class Request : uint64_t { Put, Signal, SetWord, Get, Answer, Goodbye };
  struct Header {
    Request request;
    uint64_t offset;  ///< of the target's memory; the number of a word
    uint64_t bytes;
    uint64_t value;
  };
  /// Where the answer to a question goes.
  struct Destination {
    std::span<std::byte> bytes;
    std::shared_ptr<void> keepAlive;
  };
  struct Peer {
    Header incoming;
    std::atomic<uint64_t> answers{0};
    uint64_t asked = 0;
    uint64_t settledBy = 0;  // the question whose answer says that all puts before have been done
    std::atomic<uint64_t> unsent{0};  // answers
    std::mutex mutex;                 // for whoever sends; guards what follows
    std::deque<Destination> destinations;
  };

  WorkPtr send(int target, const Header& header, std::span<const std::byte> bytes, Timeout timeout,
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
};

}  // namespace ctran
