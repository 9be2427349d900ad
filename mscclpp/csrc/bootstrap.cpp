#include <ifaddrs.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "ctran/communicator.h"
#include "engine_errors.h"
#include "host.h"
#include "interruption.h"
#include "mscclpp/core.hpp"
#include "mscclpp/env.hpp"
#include "received.h"

namespace mscclpp {
namespace {

using ctran::api::Call;
using Engine = ctran::api::Communicator;
using ctran::api::InitPoint;
using ctran::api::Rendezvous;

/// What a UniqueId holds.
struct Id {
  uint64_t magic = 0x6469'7070'6c63'7363;
  std::array<uint8_t, 32> key{};
  std::array<char, UniqueIdBytes - 40> addresses{};  // separated by blanks

  std::string secret() const { return {reinterpret_cast<const char*>(key.data()), key.size()}; }
};
static_assert(sizeof(Id) == UniqueIdBytes);

size_t checkedSize(int size) {
  if (size < 0) {
    throw Error("no message has " + std::to_string(size) + " bytes", ErrorCode::InvalidUsage);
  }
  return static_cast<size_t>(size);
}

/// Where this process listens for the others of an id.
struct Listeners {
  std::mutex mutex;
  std::map<UniqueId, std::unique_ptr<Rendezvous>> byId;
};
Listeners& listeners() {
  static auto& all = *new Listeners;
  return all;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Throws an error that names the interface if it does not have that address.
void checkInterface(const std::string& interface, const std::string& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw SysError("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, ::freeifaddrs);
  std::string has;
  bool exists = false;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (interface != entry->ifa_name) continue;
    exists = true;
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST] = {};
    const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(entry->ifa_addr, bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    if (address == host) return;
    has += (has.empty() ? "" : ", ") + std::string(host);
  }
  throw Error(exists ? "interface " + interface + " does not have the address " + address +
                           ": it has " + (has.empty() ? "none" : has)
                     : "there is no network interface " + interface,
              ErrorCode::InvalidUsage);
}

constexpr size_t kPiece = 1 << 20;  // of a message whose length comes with it

}  // namespace

void Bootstrap::groupBarrier(const std::vector<int>& ranks) {
  // Everybody tells the first, and is told by it.
  constexpr int kTag = 0x6261'7272;
  char nothing = 0;
  const int root = *std::min_element(ranks.begin(), ranks.end());
  if (getRank() != root) {
    send(&nothing, 1, root, kTag);
    recv(&nothing, 1, root, kTag);
    return;
  }
  for (const int rank : ranks) {
    if (rank != root) recv(&nothing, 1, rank, kTag);
  }
  for (const int rank : ranks) {
    if (rank != root) send(&nothing, 1, rank, kTag);
  }
}

void Bootstrap::send(const std::vector<char>& data, int peer, int tag) {
  auto bytes = static_cast<uint64_t>(data.size());
  send(&bytes, sizeof bytes, peer, tag);
  for (size_t at = 0; at < data.size(); at += kPiece) {
    const size_t piece = std::min(kPiece, data.size() - at);
    send(const_cast<char*>(data.data() + at), static_cast<int>(piece), peer, tag);
  }
}

void Bootstrap::recv(std::vector<char>& data, int peer, int tag) {
  constexpr size_t kMost = 1 << 30;
  data = receive(*this, peer, tag, kMost);
}

std::vector<char> receive(Bootstrap& bootstrap, int peer, int tag, size_t most) {
  uint64_t bytes = 0;
  bootstrap.recv(&bytes, sizeof bytes, peer, tag);
  if (bytes > most) {
    throw Error("rank " + std::to_string(peer) + " announces a message of " +
                    std::to_string(bytes) + " bytes, and at most " + std::to_string(most) +
                    " are expected",
                ErrorCode::InvalidUsage);
  }
  std::vector<char> data;
  while (data.size() < bytes) {
    const size_t at = data.size();
    data.resize(at + std::min<size_t>(kPiece, bytes - at));
    bootstrap.recv(data.data() + at, static_cast<int>(data.size() - at), peer, tag);
  }
  return data;
}

bool isOnThisHost(const Bootstrap& bootstrap, int peer) {
  const auto* const known = dynamic_cast<const TcpBootstrap*>(&bootstrap);
  if (known == nullptr) return true;
  const std::vector<int> hosts = known->engine()->hosts();
  return hosts[peer] == hosts[known->getRank()];
}

class TcpBootstrap::Impl {
 public:
  Impl(int rank, int size) : rank_(rank), size_(size) {
    if (size < 1 || rank < 0 || rank >= size) {
      throw Error("there is no rank " + std::to_string(rank) + " of " + std::to_string(size),
                  ErrorCode::InvalidUsage);
    }
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  int perNode() const { return perNode_; }
  const std::optional<UniqueId>& id() const { return id_; }

  void meet(const UniqueId& uniqueId, std::chrono::seconds timeout) {
    Id id;
    std::memcpy(&id, uniqueId.data(), sizeof id);
    if (id.magic != Id().magic) throw Error("this is no unique id", ErrorCode::InvalidUsage);
    id_ = uniqueId;
    id.addresses.back() = '\0';
    std::unique_ptr<Rendezvous> listener;
    if (rank_ == 0) {
      Listeners& all = listeners();
      const std::lock_guard lock(all.mutex);
      const auto found = all.byId.find(uniqueId);
      if (found == all.byId.end()) {
        throw Error("rank 0 has to be in the process that made the unique id",
                    ErrorCode::InvalidUsage);
      }
      listener = std::move(found->second);
      all.byId.erase(found);
    }
    meet(listener.get(), split(id.addresses.data(), ' '), id.secret(), timeout);
  }

  void meet(const std::string& trio, std::chrono::seconds timeout) {
    std::string address = trio;
    const size_t first = trio.find(':');
    const size_t last = trio.rfind(':');
    const bool startsWithInterface =
        first != std::string::npos && first != last && trio.front() != '[' &&
        (trio[first + 1] == '[' || std::count(trio.begin(), trio.end(), ':') == 2);
    if (startsWithInterface) {
      address = trio.substr(first + 1);
      // Whether the interface is there matters where its address is: at rank 0.
      if (rank_ == 0) checkInterface(trio.substr(0, first), address.substr(0, address.rfind(':')));
    }
    translated([&] {
      std::unique_ptr<Rendezvous> listener;
      if (rank_ == 0) listener = std::make_unique<Rendezvous>(address, env()->secret);
      meet(listener.get(), {address}, env()->secret, timeout);
    });
  }

  void meetInStore(const std::string& url, std::chrono::seconds timeout) {
    translated([&] {
      ctran::api::CommunicatorOptions options;
      options.rank = rank_;
      options.size = size_;
      options.name = "mscclpp";
      options.timeout = timeout;
      if (size_ > 1) options.store = ctran::api::openStore(url);
      Interruptible hooks;
      begin(Engine::create(options, &hooks));
    });
  }

  void use(std::shared_ptr<Engine> engine) {
    engine_ = std::move(engine);
    std::vector<HostName> hosts(size_);
    hosts[rank_] = ownHostName();
    allGather(hosts.data(), sizeof(HostName));
    // What a rank says of its host counts only where the engine has found it on this one.
    const std::vector<int> found = engine_->hosts();
    perNode_ = 0;
    for (int r = 0; r < size_; ++r) {
      perNode_ += found[r] == found[rank_] && hosts[r] == hosts[rank_] ? 1 : 0;
    }
  }

  const std::shared_ptr<Engine>& shared() const {
    if (!engine_) throw Error("the bootstrap is not initialized", ErrorCode::InvalidUsage);
    return engine_;
  }
  Engine& engine() const { return *shared(); }

  void send(const void* data, size_t bytes, int peer, int tag) {
    checkPeer(peer);
    // The caller does not wait for the receive, and may change the data at once.
    const auto copy = std::make_shared<std::vector<char>>(bytes);
    std::memcpy(copy->data(), data, bytes);
    Call call = message(ctran::CollectiveKind::Send, bytes, peer, tag);
    call.input = copy->data();
    translated([&] { engine().post(call, {}, copy); });
  }

  void recv(void* data, size_t bytes, int peer, int tag) {
    checkPeer(peer);
    Call call = message(ctran::CollectiveKind::Recv, bytes, peer, tag);
    call.output = data;
    run(call);
  }

  void allGather(void* all, size_t bytes) {
    Call call;
    call.kind = ctran::CollectiveKind::AllGather;
    call.count = bytes;
    call.output = all;
    call.input = static_cast<char*>(all) + bytes * static_cast<size_t>(rank_);
    run(call);
  }

  void barrier() {
    Call call;
    call.kind = ctran::CollectiveKind::Barrier;
    run(call);
  }

 private:
  void run(const Call& call) {
    Interruptible hooks;
    translated([&] { engine().run(call, {}, &hooks); });
  }

  void meet(Rendezvous* listener, const std::vector<std::string>& addresses,
            const std::string& secret, std::chrono::seconds timeout) {
    translated([&] {
      ctran::api::CommunicatorOptions options;
      options.name = "mscclpp";
      options.timeout = timeout;
      if (size_ == 1) return begin(Engine::create(options));
      InitPoint initPoint;
      Interruptible hooks;
      const auto handles = listener != nullptr
                               ? listener->gather(size_, initPoint.handle(), timeout, &hooks)
                               : Rendezvous::join(addresses, secret, rank_, size_,
                                                  initPoint.handle(), timeout, &hooks);
      begin(initPoint.form(handles, "mscclpp", options, &hooks));
    });
  }

  /// With a communicator of its own. Ranks may come to a message much later than to the rendezvous.
  void begin(std::shared_ptr<Engine> engine) {
    engine->setTimeout(
        std::max<std::chrono::nanoseconds>(engine->timeout(), std::chrono::seconds(600)));
    use(std::move(engine));
  }

  static Call message(ctran::CollectiveKind kind, size_t bytes, int peer, int tag) {
    Call call;
    call.kind = kind;
    call.count = bytes;
    call.root = peer;
    call.tag = tag;
    return call;
  }

  void checkPeer(int peer) const {
    if (peer < 0 || peer >= size_ || peer == rank_) {
      throw Error("rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                      " cannot exchange messages with rank " + std::to_string(peer),
                  ErrorCode::InvalidUsage);
    }
  }

  const int rank_;
  const int size_;
  int perNode_ = 1;
  std::optional<UniqueId> id_;
  std::shared_ptr<Engine> engine_;
};

UniqueId TcpBootstrap::createUniqueId() {
  return translated([] {
    Id id;
    fillRandom(id.key.data(), id.key.size());
    auto listener = std::make_unique<Rendezvous>(env()->commId, id.secret());
    std::string text;
    for (const std::string& address : listener->addresses()) {
      const std::string longer = text + (text.empty() ? "" : " ") + address;
      if (longer.size() < id.addresses.size()) text = longer;
    }
    text.copy(id.addresses.data(), id.addresses.size() - 1);
    UniqueId uniqueId;
    std::memcpy(uniqueId.data(), &id, sizeof id);
    Listeners& all = listeners();
    const std::lock_guard lock(all.mutex);
    all.byId[uniqueId] = std::move(listener);
    return uniqueId;
  });
}

TcpBootstrap::TcpBootstrap(int rank, int nRanks) : impl_(std::make_unique<Impl>(rank, nRanks)) {}

TcpBootstrap::TcpBootstrap(std::shared_ptr<ctran::api::Communicator> communicator)
    : impl_(std::make_unique<Impl>(communicator->rank(), communicator->size())) {
  impl_->use(std::move(communicator));
}

TcpBootstrap::~TcpBootstrap() = default;

UniqueId TcpBootstrap::getUniqueId() const {
  if (!impl_->id()) {
    throw Error("the bootstrap was not initialized with a unique id", ErrorCode::InvalidUsage);
  }
  return *impl_->id();
}

void TcpBootstrap::initialize(UniqueId uniqueId, int64_t timeoutSec) {
  impl_->meet(uniqueId, std::chrono::seconds(timeoutSec));
}
void TcpBootstrap::initialize(const std::string& ifIpPortTrio, int64_t timeoutSec) {
  impl_->meet(ifIpPortTrio, std::chrono::seconds(timeoutSec));
}
void TcpBootstrap::initializeByStore(const std::string& url, int64_t timeoutSec) {
  impl_->meetInStore(url, std::chrono::seconds(timeoutSec));
}

int TcpBootstrap::getRank() const { return impl_->rank(); }
int TcpBootstrap::getNranks() const { return impl_->size(); }
int TcpBootstrap::getNranksPerNode() const { return impl_->perNode(); }
void TcpBootstrap::send(void* data, int size, int peer, int tag) {
  impl_->send(data, checkedSize(size), peer, tag);
}
void TcpBootstrap::recv(void* data, int size, int peer, int tag) {
  impl_->recv(data, checkedSize(size), peer, tag);
}
void TcpBootstrap::allGather(void* allData, int size) {
  impl_->allGather(allData, checkedSize(size));
}
void TcpBootstrap::barrier() { impl_->barrier(); }
const std::shared_ptr<ctran::api::Communicator>& TcpBootstrap::engine() const {
  return impl_->shared();
}
std::chrono::nanoseconds TcpBootstrap::timeout() const { return impl_->engine().timeout(); }

}  // namespace mscclpp
