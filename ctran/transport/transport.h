#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ctran/base/error.h"
#include "ctran/transport/message.h"

namespace ctran {

class NamedRegions;
class Recording;

/// What a transport can do beyond messages.
struct TransportAbilities {
  bool directToUser = false;  ///< large messages arrive in the memory bound to them, without a copy
  bool remoteRead = false;    ///< registered memory of a peer is read and written without its help
  bool gpuMemory = false;     ///< messages and registered memory may lie on a GPU
};

/// Where memory lies: the number of a GPU, or the host.
inline constexpr int kHostMemory = -1;

/// What a peer needs to know of registered memory to use it. It is sent as it is in memory.
struct RemoteMemory {
  uint64_t bytes = 0;
  std::array<std::byte, 56> key{};  ///< as the transport has written it
};

/// Memory of this rank that peers may read and write while this exists.
class MemoryRegistration {
 public:
  MemoryRegistration(std::span<std::byte> memory, const RemoteMemory& remote)
      : memory(memory), remote(remote) {}
  MemoryRegistration(const MemoryRegistration&) = delete;
  MemoryRegistration& operator=(const MemoryRegistration&) = delete;
  virtual ~MemoryRegistration() = default;

  const std::span<std::byte> memory;
  const RemoteMemory remote;
};

/// How one rank of a communicator exchanges data with the others. It never blocks: a thread that
/// waits calls `poll`. Every method may be called from any thread.
///
/// Messages are two-sided: both ends name a message and bind memory to it, in any order. All
/// messages of a pair arrive, each once; those of different names arrive in any order.
class Transport {
 public:
  /// Is told what happens to the communicator, by the thread that polls. That thread holds no lock
  /// of the transport then.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void failed(const Error& error) = 0;
    /// Something has moved: threads of this rank that sleep have to look again.
    virtual void wakeUp() = 0;
  };

  virtual ~Transport() = default;

  /// Returns the name for people: "tcp".
  virtual std::string_view name() const = 0;
  virtual TransportAbilities abilities() const = 0;

  // --- Messages ---------------------------------------------------------------------------------

  /// Binds memory to a message. Its sender may be ahead of this rank, or not there yet.
  virtual std::unique_ptr<Inbound> receive(const MessageName& name, int peer, std::byte* data,
                                           size_t bytes, const OperationRecord& operation) = 0;
  virtual std::unique_ptr<Outbound> send(const MessageName& name, int peer, const std::byte* data,
                                         size_t bytes, const OperationRecord& operation) = 0;

  /// Returns how many messages of kMessageQueue have been offered so far: sent, or announced,
  /// before they were bound here. Used to receive from the rank that sends first.
  virtual uint64_t offers() const = 0;
  /// Returns the condition that there are more than `seen` offers; of that rank, as far as is
  /// known.
  virtual Condition offered(int peer, uint64_t seen) const = 0;
  virtual bool hasOffer(const MessageName& name, int peer) = 0;

  // --- Registered memory, for transports that have it ------------------------------------------

  /// `device` is kHostMemory, or a GPU. Throws Error(Unsupported) if the transport cannot register
  /// it.
  virtual std::unique_ptr<MemoryRegistration> registerMemory(std::span<std::byte> memory,
                                                             int device = kHostMemory);
  /// Returns whether memory of a peer could be written or read now, from or to `local`.
  virtual bool reaches([[maybe_unused]] int peer, [[maybe_unused]] const RemoteMemory& remote,
                       [[maybe_unused]] std::span<const std::byte> local) {
    return false;
  }
  /// Writes `source` to the registered memory of a peer, from `offset` on. The transfer ends when
  /// the data have arrived. It takes effect before what is put, got and sent to that peer later,
  /// and a rank that has received a later message sees it. Throws Error(InvalidArgument) if the
  /// data do not fit, as the following functions do. Returns null if the transport does not reach
  /// that memory; a message may.
  virtual std::unique_ptr<Transfer> put(int peer, const RemoteMemory& remote, size_t offset,
                                        std::span<const std::byte> source);
  virtual std::unique_ptr<Transfer> get(int peer, const RemoteMemory& remote, size_t offset,
                                        std::span<std::byte> destination);
  /// Adds to an aligned 64-bit word, atomically, after all earlier puts to that peer have arrived.
  virtual std::unique_ptr<Transfer> add(int peer, const RemoteMemory& remote, size_t offset,
                                        uint64_t value);

  /// Large messages from and to this memory are not copied where the transport can avoid it, as
  /// long as the returned object lives and `isCurrent` says that it is still the same memory; a
  /// peer can write there until then. Returns null if that makes no difference.
  virtual std::shared_ptr<void> useDirectly([[maybe_unused]] std::span<std::byte> memory,
                                            [[maybe_unused]] std::function<bool()> isCurrent) {
    return nullptr;
  }
  /// The memory given to useDirectly(), which several transports of this process may share; null
  /// if there is none.
  virtual std::shared_ptr<NamedRegions> directMemory() { return nullptr; }
  virtual void shareDirectMemory([[maybe_unused]] std::shared_ptr<NamedRegions> memory) {}

  // --- Peers -----------------------------------------------------------------------------------

  /// Starts to connect to a rank, so that both can tell each other of failures.
  virtual void connect(int peer) = 0;
  /// Returns whether something that the rank has sent may still be on its way.
  virtual bool mayHear(int peer) = 0;
  /// Tells the ranks that are connected of the failure of this communicator; they pass it on.
  virtual void tell(const Error& error) = 0;
  /// Says goodbye to the peers and closes, when all that was sent has arrived, or after `limit`.
  virtual void leave(std::chrono::milliseconds limit) = 0;
  /// Describes where a rank is, for people: "rank 3 on node7 (pid 12)".
  virtual std::string describe(int rank) const = 0;
  virtual int connections() = 0;          ///< number of peers to which there is a connection
  virtual int connections(int peer) = 0;  ///< number of connections to one of them
  /// Returns for how long nothing has come from the host of a rank that should acknowledge what was
  /// sent there; 0 if nothing is to be acknowledged, or it is not known.
  virtual int64_t silentNanos([[maybe_unused]] int rank) { return 0; }
  /// Describes what messages to a rank go over, for people.
  virtual std::string pathTo([[maybe_unused]] int rank) { return std::string(name()); }
  /// Counts what goes to each rank in that recording from now on. Called before anything is sent.
  virtual void record([[maybe_unused]] Recording* recording) {}
  /// Returns the bytes of messages to other ranks that this rank was given to send, without
  /// headers.
  virtual uint64_t bytesSent() const = 0;

  // --- Progress --------------------------------------------------------------------------------

  /// Moves what can be moved. Returns whether something happened, here or to a waiting operation.
  virtual bool poll() = 0;
  /// Readable when `poll` may have something to do; -1: only polling tells.
  virtual int fd() const = 0;
  /// Readable when `poll` has something to do that must not wait for this rank's next call, because
  /// others may wait for it; -1: there is nothing of that kind.
  virtual int urgentFd() const { return -1; }

 private:
  friend class Inbound;
  friend class Outbound;
  /// Is called when the memory of a message must not be used any more.
  virtual void release(Inbound& message) = 0;
  virtual void release(Outbound& message) = 0;
};

}  // namespace ctran
