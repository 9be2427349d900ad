#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "interruption.h"
#include "lines.h"
#include "memory.h"
#include "mscclpp/atomic_device.hpp"
#include "received.h"
#include "wait_limits.h"
#include "wire.h"

namespace mscclpp {
namespace {

/// A memory's name or an endpoint's from a rank of another host: of no process of this host, this
/// one included, also where it says so. Its memory would be mapped, or written.
void makeFar(std::vector<char>& name) {
  constexpr size_t kAt = offsetof(MemoryName, owner);
  static_assert(kAt == offsetof(EndpointName, owner));
  ProcessName owner;
  if (name.size() < kAt + sizeof owner) return;  // refused where it is read
  std::memcpy(&owner, name.data() + kAt, sizeof owner);
  if (!owner.isOwn() && !owner.isOfThisHost()) return;
  if (owner.isOwn()) owner.token = 0;
  owner.host = {};
  std::memcpy(name.data() + kAt, &owner, sizeof owner);
}

/// Whether the rank has gone, rather than not come.
bool isGone(const WaitLimit& limit, WaitEnd end) {
  return end == WaitEnd::Lost || end == WaitEnd::Closed || isReadable(limit.peerProcess);
}

std::string ended(const WaitLimit& limit, WaitEnd end) {
  const std::string who = "a kernel on a GPU waited for " + named(limit, end);
  if (end == WaitEnd::Lost || end == WaitEnd::Closed || end == WaitEnd::Aborted) return who;
  if (isReadable(limit.peerProcess)) return who + ", whose process has ended";
  return who + ", for " + std::to_string(limit.timeoutNanos / 1'000'000'000) +
         " s or until an earlier failure: does it execute the same? (MSCCLPP_TIMEOUT sets the "
         "limit)";
}

}  // namespace

struct SemaphoreStub::Impl {
  Connection connection;
  std::shared_ptr<uint64_t> token;  // null at the other end
  RegisteredMemory memory;
};

struct Semaphore::Impl {
  ~Impl() { endsNoMore(limit.get()); }

  Connection connection;
  SemaphoreStub local;
  SemaphoreStub remote;
  std::shared_ptr<WaitLimit> limit;
  std::mutex mutex;  // guards what follows
  std::vector<std::shared_ptr<WaitLimit>> others;
};

SemaphoreStub::SemaphoreStub(const Connection& connection) {
  auto impl = std::make_shared<Impl>();
  impl->connection = connection;
  const int gpu = connection.device().id;
  impl->token = allocateLine<uint64_t>(gpu >= 0 ? LineKind::OnGpu : LineKind::Shared, gpu);
  impl->memory = connection.context()->registerMemory(impl->token.get(), sizeof(uint64_t),
                                                      connection.transport());
  impl_ = std::move(impl);
}

const RegisteredMemory& SemaphoreStub::memory() const { return impl_->memory; }
std::vector<char> SemaphoreStub::serialize() const { return impl_->memory.serialize(); }

SemaphoreStub SemaphoreStub::deserialize(const std::vector<char>& data) {
  auto impl = std::make_shared<Impl>();
  impl->memory = RegisteredMemory::deserialize(data);
  if (impl->memory.size() < sizeof(uint64_t)) {
    throw Error("what was received is no semaphore", ErrorCode::InvalidUsage);
  }
  return SemaphoreStub(std::move(impl));
}

Semaphore::Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote)
    : impl_(new Impl{local.impl_->connection,
                     local,
                     remote,
                     newLimit(local.impl_->connection.device().type),
                     {},
                     {}}) {
  const Connection::Impl& connection = *impl_->connection.impl_;
  if (connection.process) impl_->limit->peerProcess = connection.process->get();
  if (connection.link) connection.link->ends(impl_->limit);
}

namespace {

template <class T>
T& built(const std::shared_ptr<T>& semaphore) {
  if (!semaphore) throw Error("no semaphore was built here", ErrorCode::InvalidUsage);
  return *semaphore;
}

}  // namespace

Connection& Semaphore::connection() { return built(impl_).connection; }
const RegisteredMemory& Semaphore::localMemory() const { return built(impl_).local.memory(); }
const RegisteredMemory& Semaphore::remoteMemory() const { return built(impl_).remote.memory(); }
WaitLimit* Semaphore::limit() const { return built(impl_).limit.get(); }
std::shared_ptr<uint64_t> Semaphore::makeExpected() const {
  const int gpu = built(impl_).connection.device().id;
  if (gpu >= 0) return allocateLine<uint64_t>(LineKind::OnGpu, gpu);
  return std::make_shared<uint64_t>(0);
}
void Semaphore::alsoEndsBy(std::shared_ptr<WaitLimit> limit) {
  Impl& impl = built(impl_);
  const std::lock_guard lock(impl.mutex);
  impl.others.push_back(std::move(limit));
}

namespace {

/// A message to read.
struct Step {
  virtual ~Step() = default;
  virtual void run() = 0;
};

/// Holds what was read only until somebody takes it, so that it lives as long as its users like.
template <class T>
struct Reading final : Step {
  void run() override {
    if (!read) return;
    const std::function<T()> own = std::exchange(read, nullptr);
    if (before) before->run();
    before.reset();
    try {
      value = own();
    } catch (...) {
      error = std::current_exception();
    }
  }
  T take() {
    run();
    if (error) std::rethrow_exception(error);
    return *std::exchange(value, std::nullopt);
  }

  std::shared_ptr<Step> before;
  std::function<T()> read;
  std::optional<T> value;
  std::exception_ptr error;
};

}  // namespace

class Communicator::Impl {
 public:
  Impl(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context)
      : bootstrap_(std::move(bootstrap)),
        context_(context ? std::move(context) : Context::create()) {}

  /// What `read` makes of the next message of that rank and tag: read when it is asked for, behind
  /// all that was to be read before it.
  template <class T, class Read>
  std::shared_future<T> receive(int rank, int tag, Read read) {
    std::shared_ptr<Step>& last = last_[{rank, tag}];
    const auto step = std::make_shared<Reading<T>>();
    step->before = std::exchange(last, step);
    step->read = [bootstrap = bootstrap_, rank, tag, read = std::move(read)] {
      constexpr size_t kMost = 4096;  // of a name
      std::vector<char> data = mscclpp::receive(*bootstrap, rank, tag, kMost);
      if (!isOnThisHost(*bootstrap, rank)) makeFar(data);
      return read(data);
    };
    return std::async(std::launch::deferred, [step] { return step->take(); }).share();
  }

  const std::shared_ptr<Bootstrap> bootstrap_;
  const std::shared_ptr<Context> context_;
  std::map<std::pair<int, int>, std::shared_ptr<Step>> last_;
  struct Peer {
    int rank;
    int tag;
  };
  using Peers = std::map<const void*, Peer>;
  std::shared_ptr<Peers> peers_ = std::make_shared<Peers>();
  /// Those of kernels on GPUs, which cannot throw.
  struct Semaphores {
    std::mutex mutex;  // guards what follows
    std::vector<std::weak_ptr<Semaphore::Impl>> all;
  };
  std::shared_ptr<Semaphores> semaphores_ = std::make_shared<Semaphores>();
};

Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context)
    : impl_(std::make_unique<Impl>(std::move(bootstrap), std::move(context))) {}
Communicator::~Communicator() = default;

std::shared_ptr<Bootstrap> Communicator::bootstrap() const { return impl_->bootstrap_; }
std::shared_ptr<Context> Communicator::context() const { return impl_->context_; }

RegisteredMemory Communicator::registerMemory(void* ptr, size_t size, TransportFlags transports) {
  return impl_->context_->registerMemory(ptr, size, transports);
}

void Communicator::sendMemory(const RegisteredMemory& memory, int remoteRank, int tag) {
  impl_->bootstrap_->send(memory.serialize(), remoteRank, tag);
}

std::shared_future<RegisteredMemory> Communicator::recvMemory(int remoteRank, int tag) {
  return impl_->receive<RegisteredMemory>(remoteRank, tag, RegisteredMemory::deserialize);
}

std::shared_future<Connection> Communicator::connect(const EndpointConfig& localConfig,
                                                     int remoteRank, int tag) {
  return connect(impl_->context_->createEndpoint(localConfig), remoteRank, tag);
}

std::shared_future<Connection> Communicator::connect(const Endpoint& localEndpoint, int remoteRank,
                                                     int tag) {
  impl_->bootstrap_->send(localEndpoint.serialize(), remoteRank, tag);
  return impl_->receive<Connection>(
      remoteRank, tag,
      [context = impl_->context_, peers = impl_->peers_, localEndpoint, remoteRank,
       tag](const std::vector<char>& data) {
        Connection made = context->connect(localEndpoint, Endpoint::deserialize(data));
        if (made.impl_->link) made.impl_->link->setPeer(remoteRank);
        (*peers)[made.impl_.get()] = {remoteRank, tag};
        return made;
      });
}

std::shared_future<Semaphore> Communicator::buildSemaphore(const Connection& connection,
                                                           int remoteRank, int tag) {
  const SemaphoreStub local(connection);
  impl_->bootstrap_->send(local.serialize(), remoteRank, tag);
  return impl_->receive<Semaphore>(
      remoteRank, tag,
      [local, remoteRank, bootstrap = impl_->bootstrap_,
       all = impl_->semaphores_](const std::vector<char>& data) {
        Semaphore made(local, SemaphoreStub::deserialize(data));
        made.limit()->peer = remoteRank;
        const bool isOfGpu = made.connection().device().type == DeviceType::GPU;
        if (const auto* const known = dynamic_cast<const TcpBootstrap*>(bootstrap.get())) {
          endsWith(made.limit(), known->engine(), isOfGpu);
        }
        if (isOfGpu) {
          const std::lock_guard lock(all->mutex);
          std::erase_if(all->all, [](const auto& known) { return known.expired(); });
          all->all.push_back(made.impl_);
        }
        return made;
      });
}

void Communicator::checkWaits() const {
  // May be asked on another thread than that which makes them.
  std::vector<std::shared_ptr<Semaphore::Impl>> semaphores;
  {
    const std::lock_guard lock(impl_->semaphores_->mutex);
    for (const auto& known : impl_->semaphores_->all) {
      if (auto semaphore = known.lock()) semaphores.push_back(std::move(semaphore));
    }
  }
  for (const std::shared_ptr<Semaphore::Impl>& semaphore : semaphores) {
    const WaitLimit& own = *semaphore->limit;
    if (const WaitEnd end = storedEnd(own); end != WaitEnd::None) {
      const ErrorCode code = isGone(own, end)          ? ErrorCode::RemoteError
                             : end == WaitEnd::Aborted ? ErrorCode::Aborted
                                                       : ErrorCode::Timeout;
      throw Error(ended(own, end), code);
    }
    const std::lock_guard lock(semaphore->mutex);
    for (const std::shared_ptr<WaitLimit>& limit : semaphore->others) {
      if (storedEnd(*limit) == WaitEnd::None) continue;
      throw Error(
          "a kernel on a GPU waited in vain for its proxy, which sends to rank " +
              std::to_string(semaphore->limit->peer) +
              ": a request failed (stopProxy says why), or took too long (MSCCLPP_TIMEOUT sets the "
              "limit), or this process copied to pageable memory, as tensor.cpu() does, behind the "
              "kernel: synchronize the stream before",
          ErrorCode::Timeout);
    }
  }
}

int Communicator::remoteRankOf(const Connection& connection) const {
  const auto found = impl_->peers_->find(connection.impl_.get());
  if (found == impl_->peers_->end()) {
    throw Error("the connection is not of this communicator", ErrorCode::InvalidUsage);
  }
  return found->second.rank;
}

int Communicator::tagOf(const Connection& connection) const {
  remoteRankOf(connection);
  return impl_->peers_->at(connection.impl_.get()).tag;
}

}  // namespace mscclpp
