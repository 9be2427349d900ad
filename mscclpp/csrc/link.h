#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ctran/communicator.h"
#include "names.h"
#include "staging.h"
#include "wait_limits.h"

namespace mscclpp {

/// What one end of a link asks of the other. The payload of a Write follows in messages of at most
/// kChunk bytes, or is in `text` if it fits.
struct LinkMessage {
  enum Kind : uint32_t { Write = 1, Update, Goodbye };
  static constexpr uint64_t kMagic = 0x6c69'6e6b'0000'0001;
  static constexpr size_t kInline = 256;
  static constexpr uint64_t kChunk = Staging::kBytes;

  uint64_t magic = kMagic;
  uint32_t kind = 0;
  uint32_t textBytes = 0;  // of a Goodbye: why, if it is not the end of the connection's use
  uint64_t memory = 0;     // the id of what is written
  uint64_t offset = 0;
  uint64_t size = 0;   // of a Write
  uint64_t value = 0;  // of an Update
  std::array<char, kInline> text{};
};
static_assert(sizeof(LinkMessage) == 48 + LinkMessage::kInline);

/// One end of a connection by messages of the engine. Each direction has a communicator of two
/// ranks: this end's users send on one, and a thread of the link receives from the other and writes
/// to memory that is exposed. So it makes no difference in what order ends of several links are
/// made.
class Link {
 public:
  Link(std::unique_ptr<ctran::api::InitPoint> initPoint, const EndpointName& local,
       const EndpointName& remote);
  /// Says goodbye, and ends the thread. Some seconds at most.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Which rank the other end is, for errors.
  void setPeer(int rank) { peer_.store(rank); }

  // All throw Error if the link has ended, and wait for the other end at most MSCCLPP_TIMEOUT.
  void write(const MemoryName& to, uint64_t offset, const char* from, int gpuOfSource,
             uint64_t size);
  void update(const MemoryName& to, uint64_t offset, uint64_t value);
  /// Returns when both ends are connected. A write or update has left its source when it returns.
  void flush();

  /// That limit's waits end when the link does.
  void ends(const std::shared_ptr<WaitLimit>& limit);

 private:
  using Engine = ctran::api::Communicator;
  enum class State { Forming, Open, Ended };

  // The service thread's.
  void serve();
  void form();
  void requireRdma(Engine& engine) const;
  bool receiveOne();
  void placePayload(const LinkMessage& message);
  void placeValue(const LinkMessage& message);
  void receive(void* data, uint64_t bytes, std::chrono::nanoseconds timeout);

  void awaitOpen();
  void send(const void* data, uint64_t bytes);
  void sayGoodbye(const std::string& why) noexcept;
  void end(const std::string& why, ErrorCode code, WaitEnd kind);
  void endBy(const ctran::Error& error, const char* doing);
  void checkDestination(const MemoryName& to) const;
  std::string peer() const;

  std::unique_ptr<ctran::api::InitPoint> initPoint_;  // until both communicators are there
  const EndpointName local_;
  const EndpointName remote_;
  const uint64_t process_;  // that has the thread: a child made by fork has not
  std::atomic<int> peer_{-1};

  std::atomic<bool> breaksOffReceive_{false};
  std::shared_ptr<Engine> in_;  // of the service thread
  Staging placing_;             // of the service thread

  std::mutex sending_;  // guards what follows
  std::shared_ptr<Engine> out_;
  Staging fetching_;
  bool hasSaidGoodbye_ = false;
  std::atomic<bool> breaksOffSend_{false};

  std::mutex mutex_;  // guards what follows; taken after sending_
  std::condition_variable changed_;
  State state_ = State::Forming;
  bool hasThreadEnded_ = false;
  std::string reason_;
  ErrorCode code_ = ErrorCode::RemoteError;
  WaitEnd kind_ = WaitEnd::Failed;
  std::vector<std::weak_ptr<WaitLimit>> limits_;

  std::thread thread_;
};

}  // namespace mscclpp
