#pragma once

#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <mscclpp/errors.hpp>
#include <mscclpp/wait_limit.hpp>

/// What the symbols of the library are marked with.
#define MSCCLPP_API __attribute__((visibility("default")))

namespace ctran::api {
class Communicator;
}

namespace mscclpp {

inline constexpr unsigned int UniqueIdBytes = 128;

/// Names one rendezvous: its key, and where rank 0 listens. Whoever knows it can join.
using UniqueId = std::array<uint8_t, UniqueIdBytes>;

MSCCLPP_API std::string version();

/// How ranks find each other and exchange messages on the host. Programs may derive from it.
///
/// A send does not wait for its receive. Messages of one pair and tag arrive in their order.
class MSCCLPP_API Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual int getRank() const = 0;
  virtual int getNranks() const = 0;
  /// Ranks of this rank's host, this one included.
  virtual int getNranksPerNode() const = 0;
  /// Ranks whose memory this one can map.
  virtual int getNranksPerIpcDomain() const { return getNranksPerNode(); }

  virtual void send(void* data, int size, int peer, int tag) = 0;
  virtual void recv(void* data, int size, int peer, int tag) = 0;
  /// Of `size` bytes per rank, in the order of ranks; this rank's are there already.
  virtual void allGather(void* allData, int size) = 0;
  virtual void barrier() = 0;
  /// How long a wait may take.
  virtual std::chrono::nanoseconds timeout() const { return std::chrono::seconds(600); }

  /// Of the listed ranks, who all call it.
  void groupBarrier(const std::vector<int>& ranks);
  void send(const std::vector<char>& data, int peer, int tag);
  void recv(std::vector<char>& data, int peer, int tag);
};

/// On a communicator of the engine.
class MSCCLPP_API TcpBootstrap : public Bootstrap {
 public:
  /// Listens, in this process, which has to be rank 0's.
  static UniqueId createUniqueId();

  TcpBootstrap(int rank, int nRanks);
  /// On a communicator that there is; this uses it alone from then on.
  explicit TcpBootstrap(std::shared_ptr<ctran::api::Communicator> communicator);
  ~TcpBootstrap() override;

  /// The one that it was initialized with. Throws Error(InvalidUsage) if it was by other means.
  UniqueId getUniqueId() const;

  /// Collective. Throws Error(Timeout) that names who did not come.
  void initialize(UniqueId uniqueId, int64_t timeoutSec = 30);
  /// "interface:address:port" or "address:port", of rank 0. Whoever reaches that port while ranks
  /// are missing can join, unless MSCCLPP_SECRET is set, to the same secret on all ranks.
  void initialize(const std::string& ifIpPortTrio, int64_t timeoutSec = 30);
  /// Through a store of the engine (ctran/communicator.h): "file:///DIRECTORY", for processes of
  /// one user, "memory://NAME", for threads of one process.
  void initializeByStore(const std::string& url, int64_t timeoutSec = 30);

  int getRank() const override;
  int getNranks() const override;
  int getNranksPerNode() const override;
  void send(void* data, int size, int peer, int tag) override;
  void recv(void* data, int size, int peer, int tag) override;
  void allGather(void* allData, int size) override;
  void barrier() override;
  std::chrono::nanoseconds timeout() const override;
  /// Its communicator, for calls of the engine in the same order on all ranks.
  const std::shared_ptr<ctran::api::Communicator>& engine() const;
  using Bootstrap::recv;
  using Bootstrap::send;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

/// How a rank reaches another. CudaIpc: memory of one host, that others map. Ethernet: messages, by
/// whatever network there is between the hosts of both, or within one. IB0 to IB7: the same, and an
/// error unless it is RDMA; which device, the engine chooses (CTRAN_IB_HCA).
enum class Transport { Unknown, CudaIpc, IB0, IB1, IB2, IB3, IB4, IB5, IB6, IB7, Ethernet };
inline constexpr size_t kTransports = 11;

MSCCLPP_API std::string to_string(Transport transport);

class TransportFlags {
 public:
  TransportFlags() = default;
  TransportFlags(Transport transport) { set(transport); }

  bool has(Transport transport) const { return bits_[static_cast<size_t>(transport)]; }
  bool none() const { return bits_.none(); }
  bool any() const { return bits_.any(); }
  bool all() const { return bits_.all(); }
  size_t count() const { return bits_.count(); }
  unsigned long to_ulong() const { return bits_.to_ulong(); }

  TransportFlags& operator|=(TransportFlags other) {
    bits_ |= other.bits_;
    return *this;
  }
  TransportFlags& operator&=(TransportFlags other) {
    bits_ &= other.bits_;
    return *this;
  }
  friend TransportFlags operator|(TransportFlags a, TransportFlags b) { return a |= b; }
  friend TransportFlags operator&(TransportFlags a, TransportFlags b) { return a &= b; }
  friend bool operator==(TransportFlags a, TransportFlags b) { return a.bits_ == b.bits_; }

 private:
  void set(Transport transport) { bits_.set(static_cast<size_t>(transport)); }

  std::bitset<kTransports> bits_;
};

inline TransportFlags operator|(Transport a, Transport b) {
  return TransportFlags(a) | TransportFlags(b);
}

enum class DeviceType { Unknown, CPU, GPU };

/// Where the kernels of a program run that is compiled as this one is: on GPUs by nvcc, or with
/// MSCCLPP_USE_CUDA defined; else on the host.
#if defined(__CUDACC__) || defined(MSCCLPP_USE_CUDA)
constexpr DeviceType kKernelDevice = DeviceType::GPU;
#else
constexpr DeviceType kKernelDevice = DeviceType::CPU;
#endif

struct Device {
  Device(DeviceType type = kKernelDevice, int id = -1) : type(type), id(id) {}
  DeviceType type;
  int id;  ///< of the GPU; -1: the one that is current
};

/// `device` is where the kernels run that use what is made of it: channels, semaphores.
struct EndpointConfig {
  EndpointConfig() = default;
  EndpointConfig(Transport transport, Device device = Device(kKernelDevice),
                 int maxWriteQueueSize = -1)
      : transport(transport), device(device), maxWriteQueueSize(maxWriteQueueSize) {}
  Transport transport = Transport::Unknown;
  Device device;
  int maxWriteQueueSize = -1;
};

/// One end of a connection, which the other rank has to know.
class MSCCLPP_API Endpoint {
 public:
  Endpoint() = default;
  const EndpointConfig& config() const;
  Transport transport() const;
  std::vector<char> serialize() const;
  static Endpoint deserialize(const std::vector<char>& data);

 private:
  friend class Context;
  friend class Connection;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Memory that other ranks read or write. What a rank registers, and what others get of it. Over
/// Ethernet and IB it is written as long as a copy lives of what registerMemory returned.
class MSCCLPP_API RegisteredMemory {
 public:
  RegisteredMemory() = default;

  /// Where it is in this process. Throws Error(InvalidUsage) for memory of another process that
  /// cannot be mapped here: it is on another host, or its owner has to take it from GpuBuffer.
  void* data() const;
  /// The same, where it comes from.
  void* originalDataPtr() const;
  size_t size() const;
  TransportFlags transports() const;

  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) if the bytes make no sense, Error(RemoteError) if its owner is
  /// gone.
  static RegisteredMemory deserialize(const std::vector<char>& data);

 private:
  friend class Context;
  friend class Connection;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

class Context;
class Semaphore;

/// From this rank to another: the proxy's side of channels. One thread at a time.
///
/// Both ends of an Ethernet or IB connection are made in any order; the first use waits for the
/// other end. When the last copy of an end goes, the other end's uses fail, and waits for its
/// semaphores end.
class MSCCLPP_API Connection {
 public:
  Connection() = default;

  /// Copies to memory of the other end. Throws Error(InvalidUsage) outside of either memory.
  void write(const RegisteredMemory& dst, uint64_t dstOffset, const RegisteredMemory& src,
             uint64_t srcOffset, uint64_t size);
  /// Sets a word of the other end, and `*src`. All that was written before is visible to who sees
  /// the new value.
  void updateAndSync(const RegisteredMemory& dst, uint64_t dstOffset, uint64_t* src,
                     uint64_t newValue);
  /// Returns when the sources of all that was written before may be changed; over Ethernet and IB
  /// they may be as soon as `write` returns.
  void flush(int64_t timeoutUsec = -1);

  Transport transport() const;
  Transport remoteTransport() const;
  std::shared_ptr<Context> context() const;
  int getMaxWriteQueueSize() const;
  /// Where this end's kernels run.
  Device device() const;

 private:
  friend class Context;
  friend class Communicator;
  friend class Semaphore;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// One end of a semaphore: the word that the other end raises.
class MSCCLPP_API SemaphoreStub {
 public:
  explicit SemaphoreStub(const Connection& connection);
  const RegisteredMemory& memory() const;
  std::vector<char> serialize() const;
  static SemaphoreStub deserialize(const std::vector<char>& data);

 private:
  friend class Semaphore;
  struct Impl;
  explicit SemaphoreStub(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// A pair of words, one at each end of a connection, each raised by the other end.
class MSCCLPP_API Semaphore {
 public:
  Semaphore() = default;
  Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote);
  Connection& connection();
  const RegisteredMemory& localMemory() const;
  const RegisteredMemory& remoteMemory() const;
  /// Of waits for it: see WaitLimit.
  WaitLimit* limit() const;
  /// A word, zero, for what this end's kernels have waited for.
  std::shared_ptr<uint64_t> makeExpected() const;
  /// Waits that end by that limit, such as for a proxy, are told of with those for this semaphore.
  void alsoEndsBy(std::shared_ptr<WaitLimit> limit);

 private:
  friend class Communicator;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Makes memory, endpoints and connections, without exchanging anything.
class MSCCLPP_API Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create() { return std::shared_ptr<Context>(new Context); }

  RegisteredMemory registerMemory(void* ptr, size_t size, TransportFlags transports);
  Endpoint createEndpoint(const EndpointConfig& config);
  /// Throws Error(InvalidUsage) if these ends cannot reach each other. An endpoint of Ethernet or
  /// IB serves one connection.
  Connection connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint);

 private:
  Context() = default;
};

/// Exchanges memory, connections and semaphores between ranks, over a bootstrap.
///
/// What is sent to one rank with one tag arrives in its order; what waits for it is asked for in
/// that order, whatever the order in which the futures are looked at. One thread at a time.
class MSCCLPP_API Communicator {
 public:
  explicit Communicator(std::shared_ptr<Bootstrap> bootstrap,
                        std::shared_ptr<Context> context = nullptr);
  ~Communicator();

  std::shared_ptr<Bootstrap> bootstrap() const;
  std::shared_ptr<Context> context() const;

  RegisteredMemory registerMemory(void* ptr, size_t size, TransportFlags transports);
  void sendMemory(const RegisteredMemory& memory, int remoteRank, int tag = 0);
  std::shared_future<RegisteredMemory> recvMemory(int remoteRank, int tag = 0);

  std::shared_future<Connection> connect(const EndpointConfig& localConfig, int remoteRank,
                                         int tag = 0);
  std::shared_future<Connection> connect(const Endpoint& localEndpoint, int remoteRank,
                                         int tag = 0);
  std::shared_future<Semaphore> buildSemaphore(const Connection& connection, int remoteRank,
                                               int tag = 0);

  /// Throws Error(Timeout), or Error(RemoteError) if a process has ended, that names the rank, if a
  /// wait in a kernel on a GPU has ended in vain: results of that kernel are worthless, and its
  /// channels of no more use.
  void checkWaits() const;

  int remoteRankOf(const Connection& connection) const;
  int tagOf(const Connection& connection) const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

/// What kernels get of a channel or another object of the host.
template <class T>
using DeviceHandle = typename T::DeviceHandle;

template <class T>
DeviceHandle<std::decay_t<T>> deviceHandle(T&& object) {
  return object.deviceHandle();
}

/// What a packet carries.
template <class T>
using PacketPayload = typename T::Payload;

}  // namespace mscclpp
