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

class Recording;

/// What a transport can do beyond messages.
struct TransportAbilities {
  bool directToUser = false;  ///< large messages arrive in the memory bound to them, without a copy
  bool remoteRead = false;    ///< registered memory of a peer is read and written without its help
  bool gpuMemory = false;     ///< messages and registered memory may lie on a GPU
};

/// Where memory lies: the number of a GPU, or the host.
inline constexpr int kHostMemory = -1;

/// What a peer needs to know of registered memory to use it. It travels as it is.
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

/// How one rank of a communicator exchanges data with the others. Never blocks: whoever waits calls
/// `poll`. Every method may be called from any thread.
///
/// Messages are two-sided: both ends name a message and bind memory to it, in any order. All
/// messages of a pair arrive, each once; those of different names in any order.
class Transport {
 public:
  /// Who hears what happens to the communicator. Called by whoever polls, who holds no lock of the
  /// transport then.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void failed(const Error& error) = 0;
    /// Something has moved: threads of this rank that sleep have to look again.
    virtual void wakeUp() = 0;
  };

  virtual ~Transport() = default;

  /// For people: "tcp".
  virtual std::string_view name() const = 0;
  virtual TransportAbilities abilities() const = 0;

  // --- Messages ---------------------------------------------------------------------------------

  /// Binds memory to a message. Its sender may be further than this rank, or not there yet.
  virtual std::unique_ptr<Inbound> receive(const MessageName& name, int peer, std::byte* data,
                                           size_t bytes, const OperationRecord& operation) = 0;
  virtual std::unique_ptr<Outbound> send(const MessageName& name, int peer, const std::byte* data,
                                         size_t bytes, const OperationRecord& operation) = 0;

  /// How many messages of kMessageQueue have been offered so far: sent, or announced, before they
  /// were bound here. For whoever takes a message from the rank that sends one first.
  virtual uint64_t offers() const = 0;
  /// That there are more than `seen`; of that rank, as far as known.
  virtual Condition offered(int peer, uint64_t seen) const = 0;
  virtual bool hasOffer(const MessageName& name, int peer) = 0;

  // --- Registered memory, of transports that have it
  // ----------------------------------------------

  /// `device`: kHostMemory, or a GPU. Throws Error(Unsupported) if the transport cannot.
  virtual std::unique_ptr<MemoryRegistration> registerMemory(std::span<std::byte> memory,
                                                             int device = kHostMemory);
  /// Whether memory of a peer could be written now, or read, from or to `local`.
  virtual bool reaches([[maybe_unused]] int peer, [[maybe_unused]] const RemoteMemory& remote,
                       [[maybe_unused]] std::span<const std::byte> local) {
    return false;
  }
  /// Writes `source` to the registered memory of a peer, from `offset` on. Ends when it is there.
  /// Takes effect before what is put, got and sent to that peer later, and whoever has got a later
  /// message sees it. Throws Error(InvalidArgument) if it does not fit, as the following do. Null
  /// where it does not reach there, which a message may do.
  virtual std::unique_ptr<Transfer> put(int peer, const RemoteMemory& remote, size_t offset,
                                        std::span<const std::byte> source);
  virtual std::unique_ptr<Transfer> get(int peer, const RemoteMemory& remote, size_t offset,
                                        std::span<std::byte> destination);
  /// Adds to an aligned 64-bit word, atomically, after all earlier puts to that peer have arrived.
  virtual std::unique_ptr<Transfer> add(int peer, const RemoteMemory& remote, size_t offset,
                                        uint64_t value);

  /// Large messages from and to this memory are not copied, where the transport can do without, as
  /// long as what it returns lives, and `isCurrent` says that it is still the same memory; a peer
  /// can write there until then. Null if that makes no difference.
  virtual std::shared_ptr<void> useDirectly([[maybe_unused]] std::span<std::byte> memory,
                                            [[maybe_unused]] std::function<bool()> isCurrent) {
    return nullptr;
  }

  // --- Peers
  // --------------------------------------------------------------------------------------

  /// Begins to connect to a rank, so that both can tell each other of failures.
  virtual void connect(int peer) = 0;
  /// Whether something that the rank has sent may still be on its way.
  virtual bool mayHear(int peer) = 0;
  /// Tells the others, those that are connected, of the failure of this communicator; they pass it
  /// on.
  virtual void tell(const Error& error) = 0;
  /// Says goodbye to the peers and closes, when all that was sent has arrived, or after `limit`.
  virtual void leave(std::chrono::milliseconds limit) = 0;
  /// Where a rank is, for people: "rank 3 on node7 (pid 12)".
  virtual std::string describe(int rank) const = 0;
  virtual int connections() = 0;          ///< peers to whom there is a connection,
  virtual int connections(int peer) = 0;  ///< and how many there are to one of them
  /// For how long nothing has come from the host of a rank that should acknowledge what was sent
  /// there; 0 where that is not so, or not known.
  virtual int64_t silentNanos([[maybe_unused]] int rank) { return 0; }
  /// What messages to a rank go over, for people.
  virtual std::string pathTo([[maybe_unused]] int rank) { return std::string(name()); }
  /// From now on what goes to each rank is counted there. Before anything is sent.
  virtual void record([[maybe_unused]] Recording* recording) {}
  /// Bytes of messages, without headers, that this rank has been given for other ranks.
  virtual uint64_t bytesSent() const = 0;

  // --- Progress
  // -----------------------------------------------------------------------------------

  /// Moves what can be moved; whether something happened, here or to a waiting operation.
  virtual bool poll() = 0;
  /// Readable when `poll` may have something to do; -1: only polling tells.
  virtual int fd() const = 0;
  /// Readable when `poll` has something to do that must not wait for this rank's next call, as
  /// others may wait for it; -1: there is nothing of that kind.
  virtual int urgentFd() const { return -1; }

 private:
  friend class Inbound;
  friend class Outbound;
  /// The memory of a message is to be used no more.
  virtual void release(Inbound& message) = 0;
  virtual void release(Outbound& message) = 0;
};

}  // namespace ctran
