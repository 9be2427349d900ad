#include "torchcomms/csrc/backends/candidates.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <cstring>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ctran/base/error.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/os/net_address.h"
#include "ctran/os/process.h"

namespace torch::comms {

namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// How long an address of rank 0 is tried, unless it is the last one.
constexpr milliseconds kTry{3000};

/// Where rank 0 of the new members serves the store of all members.
struct StoreAddress {
  std::array<char, 128> host{};  ///< hostIdentity()
  uint16_t port = 0;
  std::array<ctran::NetAddress, ctran::kMaxAddresses> addresses{};
};

std::vector<ctran::NetAddress> ownAddresses() {
  try {
    return ctran::localAddresses();
  } catch (const ctran::Error&) {  // there is no network
    return {};
  }
}

StorePtr serve(StoreAddress& address, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  address.port = store->getPort();
  ctran::hostIdentity().copy(address.host.data(), address.host.size() - 1);
  const auto own = ownAddresses();
  std::copy_n(own.begin(), std::min(own.size(), address.addresses.size()),
              address.addresses.begin());
  return store;
}

/// The hosts of rank 0 as this rank may reach it, best first.
std::vector<std::string> hostsOf(const StoreAddress& address) {
  if (ctran::hostIdentity().compare(0, address.host.size() - 1, address.host.data()) == 0) {
    return {"127.0.0.1"};
  }
  std::vector<ctran::NetAddress> peer;
  for (const ctran::NetAddress& one : address.addresses) {
    if (one.family == 4 || one.family == 6) peer.push_back(one);
  }
  std::vector<std::string> hosts;
  for (const auto& one : ctran::byReach(peer, ownAddresses(), /*sameMachine=*/true)) {
    std::string text = one.text();
    text.erase(text.rfind(':'));
    if (text.front() == '[') text = text.substr(1, text.size() - 2);
    hosts.push_back(std::move(text));
  }
  return hosts;
}

StorePtr call(const StoreAddress& address, milliseconds timeout) {
  const std::vector<std::string> hosts = hostsOf(address);
  std::string tried;
  for (const std::string& host : hosts) {
    c10d::TCPStoreOptions options;
    options.port = address.port;
    options.timeout = &host == &hosts.back() ? timeout : std::min(timeout, kTry);
    try {
      StorePtr store = c10::make_intrusive<c10d::TCPStore>(host, options);
      store->setTimeout(timeout);
      return store;
    } catch (const std::exception&) {
      tried += " " + host;
    }
  }
  throw ctran::Error(ctran::ErrorKind::PeerLost,
                     "the store that rank 0 of the new members serves at port " +
                         std::to_string(address.port) + " cannot be reached; tried:" + tried,
                     {0}, "reconfigure", "does a firewall let its ports through?");
}

/// A store of all ranks of `members`. Collective.
StorePtr commonStore(TorchCommBackend& members, milliseconds timeout) {
  StoreAddress address;
  StorePtr store;
  const HostWait wait;
  if (members.getRank() == 0) store = serve(address, timeout);
  at::Tensor bytes = at::empty({sizeof address}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &address, sizeof address);
  BroadcastOptions options;
  options.timeout = timeout;
  members.broadcast(bytes, 0, /*async_op=*/false, options);
  std::memcpy(&address, bytes.const_data_ptr(), sizeof address);
  address.host.back() = '\0';
  return store ? store : call(address, timeout);
}

}  // namespace

Candidates::Candidates(const std::string& backend, const std::string& name, milliseconds timeout)
    : prefix_(backend + ":") {
  CommOptions options;
  options.rank = 0;
  options.size = 1;
  options.timeout = timeout;
  options.enable_reconfigure = true;
  options.abort_process_on_timeout_or_error = false;
  bootstrap_ = TorchCommFactory::get().create_backend("ctran", at::kCPU, name, options);
}

std::string Candidates::handle() const { return prefix_ + bootstrap_->getInitHandle(); }

CommOptions Candidates::meet(const ReconfigureOptions& options, CommOptions members) {
  ReconfigureOptions met = options;
  met.hints.clear();
  if (met.timeout == kNoTimeout) met.timeout = members.timeout;
  for (size_t i = 0; i < met.init_handles.size(); ++i) {
    std::string& handle = met.init_handles[i];
    if (handle.rfind(prefix_, 0) != 0) {
      throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                         "handle " + std::to_string(i) + " of the members is none of this backend",
                         {}, "reconfigure", "pass what get_init_handle() returns on each member");
    }
    handle.erase(0, prefix_.size());
  }
  bootstrap_->reconfigure(met);
  members.rank = bootstrap_->getRank();
  members.size = bootstrap_->getSize();
  members.timeout = met.timeout;
  if (!options.hints.empty()) members.hints = options.hints;
  members.store = members.size == 1 ? nullptr : commonStore(*bootstrap_, met.timeout);
  return members;
}

}  // namespace torch::comms
