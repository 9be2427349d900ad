#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ctran/base/error.h"
#include "ctran/os/shared_memory.h"
#include "ctran/trace/settings.h"
#include "ctran/trace/ticks.h"

namespace ctran {

/// What the ranks of one host record lies at the end of the memory that they share:
///
///   ... | per rank: RecordingHeader, RecordedSetting, choices, links, collectives, messages,
///   replays | footer
///
/// The memory is the communicator's own sealed memfd, not a file with a name: nothing is left when
/// the last process has ended, however it ended. Whoever looks from outside opens it through
/// /proc/PID/fd of any process that has it; the survivors of a killed rank have that rank's part.
/// The footer is the last page of the file, so that a reader needs no other number than its size.
///
/// Messages are all that fewer than all ranks call: sends, receives, and what windows do.
///
/// Every field is an atomic word with one writer at a time. Readers trust none of it.
struct RecordingFooter {
  static constexpr uint64_t kMagic = 0x34656361727463ULL;  // "ctrace4"

  std::atomic<uint64_t> magic;  ///< written last
  std::atomic<uint64_t> ranks;  ///< of this host
  std::atomic<uint64_t> group;  ///< names the communicator on all hosts
};

/// One operation: two cache lines. The first is written when it starts, the second while it runs.
struct RecordSlot {
  using Word = std::atomic<uint64_t>;
  alignas(64) Word version;  ///< position in the ring + 1; 0 while the slot is rewritten
  Word what;                 ///< kind, data type, reduction and root, as packed by the writer
  Word count;
  Word bytes;
  Word calledAt;   ///< ticks, as all times
  Word startedAt;  ///< after that it was in a queue
  Word tag;        ///< of a message; of what a window does its windowTag; of a collective the
                   ///< bytes that this rank is to get, where blocks differ; of a replay twice the
                   ///< position of the call that was captured, + 1 if that is a message
  Word choice;     ///< index among the choices + 1; 0: none
  alignas(64) Word waitingFor;  ///< now: rank + 2; 1: for one of several; 0: does not wait
  Word waitingSince;
  Word firstAt;      ///< something came for the first time; 0: not yet, or there was no wait
  Word waited;       ///< ticks of all waits
  Word longestWait;  ///< ticks of the longest one,
  Word longestFor;   ///< and for whom, as waitingFor
  Word failedWith;   ///< ErrorKind + 1
  Word endedAt;      ///< 0: it runs
};
static_assert(sizeof(RecordSlot) == 128);

struct RecordingHeader {
  enum class State : uint64_t { Unused, Alive, Left };
  using Word = std::atomic<uint64_t>;

  Word state, rank, size, pid;
  Word processStart;  ///< as in /proc/PID/stat: another process may get the pid
  Word hasTickCounter;
  Word ticks, monotonic, realtime;  ///< of one moment; nanoseconds
  Word timeout;                     ///< nanoseconds
  alignas(64) Word nextCollective;
  Word nextMessage;
  Word queued;  ///< collectives that have been called and have not started
  Word choices;
  Word failedWith;  ///< ErrorKind + 1 of what broke the communicator, here
  Word isOff;       ///< operations are counted, not recorded
  Word takesSettings;
  Word readOfEach;  ///< bytes that it has read of each neighbour's shared memory, in reductions
  Word nextReplay;
  Word tellsReplays;  ///< operations have been captured whose replays are recorded
  char name[128];     ///< of the communicator; written before `state`
  char host[128];
  char failure[1024];  ///< written before `failedWith`, as all below
  static constexpr size_t kBlamed = 32;
  Word blamed[kBlamed];  ///< ranks + 1 that the failure names, the first of them; 0: no more
};

/// An algorithm and why it was chosen. Never changes once counted.
struct RecordedChoice {
  char algorithm[64];
  char why[192];
};

/// What goes between a rank and one other. The first word is written last, once.
///
/// Between hosts the sender counts. On one host the reader does, as in most collectives nobody
/// knows who reads what: what a rank of one host has sent to another is what that one has read.
struct RecordedLink {
  using Word = std::atomic<uint64_t>;
  enum class Transport : uint64_t { Tcp, Rdma, SharedMemory };

  Word peer;        ///< rank + 1; 0: there is none
  Word transport;   ///< now; what goes over RDMA has no times
  Word sent;        ///< bytes that were given to it, or that this rank has written for it
  Word arrived;     ///< bytes that its host has got over TCP, as of the last look
  Word busyNanos;   ///< how long some of them were on their way, the same
  Word read;        ///< bytes that this rank has read of its memory that is shared
  Word copied;      ///< bytes that this rank has read of its own memory (process_vm_readv)
  Word inMessages;  ///< bytes that it has sent here through a channel of shared memory

  /// For what only one thread at a time counts: cheaper than an atomic addition.
  static void add(Word& word, uint64_t bytes) {
    word.store(word.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
};
static_assert(sizeof(RecordedLink) == 64);

/// What one rank of a communicator records. Several threads may do so: one for the collectives, any
/// number for messages.
class Recording {
 public:
  static constexpr uint64_t kCollectives = 1024;
  static constexpr uint64_t kMessages = 512;
  static constexpr uint64_t kReplays = 512;
  static constexpr uint64_t kChoices = 256;
  static constexpr uint64_t kLinks = 128;  ///< its neighbours, and the first others

  static constexpr size_t kPage = 4096;
  static constexpr size_t kHeaderBytes = kPage;
  static constexpr size_t kChoicesBytes = kChoices * sizeof(RecordedChoice);
  static constexpr size_t kLinksBytes = kLinks * sizeof(RecordedLink);
  static constexpr size_t kRankBytes = kHeaderBytes + kChoicesBytes + kLinksBytes +
                                       (kCollectives + kMessages + kReplays) * sizeof(RecordSlot);
  static_assert(sizeof(RecordingHeader) <= RecordedSetting::kOffset && kRankBytes % kPage == 0);
  static_assert(RecordedSetting::kOffset + sizeof(RecordedSetting) <= kHeaderBytes);

  /// What `ranks` of a host need at the end of their memory.
  static constexpr size_t bytesFor(int ranks) { return ranks * kRankBytes + kPage; }

  struct Who {
    int rank, size;
    std::string name, host;
    uint64_t group;
    int64_t timeoutNanos;
    bool takesSettings = true;  ///< it looks at `asked`
  };

  /// Of the `index`-th of `ranks` on this host. `memory` ends with bytesFor(ranks).
  Recording(std::shared_ptr<SharedMapping> memory, int ranks, int index, const Who& who);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// The slot of an operation that is about to start, and its position in its ring. Of collectives
  /// one thread at a time; their positions are the same on all ranks.
  RecordSlot& begin(bool isMessage, uint64_t& position) {
    if (!isMessage) {
      position = header_->nextCollective.load(std::memory_order_relaxed);
      header_->nextCollective.store(position + 1, std::memory_order_relaxed);
    } else {
      position = header_->nextMessage.fetch_add(1, std::memory_order_relaxed);
    }
    return slot(isMessage, position);
  }
  RecordSlot& slot(bool isMessage, uint64_t position) {
    return isMessage ? messages_[position % kMessages] : collectives_[position % kCollectives];
  }

  /// The same of an operation that runs in a replay of a graph. One thread at a time.
  RecordSlot& beginReplay(uint64_t& position) {
    position = header_->nextReplay.load(std::memory_order_relaxed);
    header_->nextReplay.store(position + 1, std::memory_order_relaxed);
    return replay(position);
  }
  RecordSlot& replay(uint64_t position) { return replays_[position % kReplays]; }
  void tellsReplays() { header_->tellsReplays.store(1, std::memory_order_relaxed); }

  /// Whether operations that start are recorded, as CTRAN_TRACE says; they are counted anyway. Any
  /// thread.
  bool isOn() const { return header_->isOff.load(std::memory_order_relaxed) == 0; }
  void turn(bool on) { header_->isOff.store(on ? 0 : 1, std::memory_order_relaxed); }

  /// What somebody has asked of this rank and what is not answered yet. Nothing of it is trusted.
  struct Asked {
    uint64_t number;
    std::string name, value;
  };
  std::optional<Asked> asked() const;
  /// Nobody looks at what is asked: whoever asks need not wait.
  void refuseSettings() {
    setting_->answered.store(RecordedSetting::kTakesNone, std::memory_order_release);
  }
  /// `why`: why it was not taken; empty if it was.
  void answer(uint64_t number, std::string_view why);

  /// The number of a choice, from 1; 0 if there is no room for more. Any thread.
  uint32_t choice(std::string_view algorithm, std::string_view why);
  /// Where what goes between this rank and that one is counted; null if there is no room for more.
  /// One thread at a time.
  RecordedLink* link(int peer);
  RecordedLink::Word& readOfEach() { return header_->readOfEach; }
  /// Of a number that `choice` has returned.
  std::string algorithm(uint32_t choice) const;

  void queued(int64_t change) { header_->queued.fetch_add(change, std::memory_order_relaxed); }
  /// What broke the communicator. The first counts. Any thread.
  void failed(const Error& error);
  /// The rank has left: its end will be no death.
  void left();

 private:
  std::shared_ptr<SharedMapping> memory_;
  RecordingHeader* header_;
  RecordedSetting* setting_;
  RecordedChoice* choices_;
  RecordedLink* links_;
  RecordSlot* collectives_;
  RecordSlot* messages_;
  RecordSlot* replays_;
  std::mutex mutex_;  // of choices and the failure
};

}  // namespace ctran
