// What a rank is told when it joins, by the store and by a leader, and what a leader is told by
// those who join. The first byte says which:
//
//   0  the rest is what the store holds
//   1  the rest is what a leader of this host answers to a rank that joins it, then it hangs up
//   2  the rest is what a caller of this host says to a leader: after the handshake if the next
//      byte is odd, else instead of it; it keeps silent in the end instead of hanging up if that
//      byte's bit 1 is set
//   3  the rest are addresses of three ranks, which this rank then tries to reach
//   4  the rest are the places of three ranks
#include "ctran/bootstrap/hand_over.h"
#include "ctran/bootstrap/local_call.h"

#include <thread>

#include "ctran/base/error.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"
#include "tests/fuzz/input.h"

namespace ctran::testing {
namespace {

const std::string kHost = "here/fuzz";

std::span<const std::byte> rest(Input& input) { return input.bytes(SIZE_MAX); }

void fromStore(Input input) {
  const auto bytes = rest(input);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    const LeaderAddress address = LeaderAddress::parse(text);
    require(address.serialize() == text, "an address is what was read");
    // At a host that is not this one and has no address that could be tried.
    LeaderAddress other = address;
    other.addresses = {};
    NotJoined reason;
    require(!join(other, 1, 3, Deadline{}, nullptr, &reason, kHost), "nobody listens there");
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::System || error.kind() == ErrorKind::Timeout,
            "what the store holds is no argument of the caller");
  }
}

void fromLeader(Input input) {
  const std::string name = "ctran-fuzz-" + std::to_string(::getpid());
  LeaderAddress leader;
  static Acceptor& acceptor = *new Acceptor(name, leader.key);
  std::copy(name.begin(), name.end(), leader.socketName.begin());
  std::copy(kHost.begin(), kHost.end(), leader.host.begin());
  const auto answer = rest(input);
  std::thread accepts([&] {
    try {
      const auto giveUp = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      Socket socket;
      while (!socket) {
        const int sockets[] = {acceptor.fd()};
        waitReadable(sockets, giveUp);
        acceptor.poll([](const Introduction&) { return Verdict::Welcome; },
                      [&](const Introduction&, Socket caller) { socket = std::move(caller); });
      }
      std::array<std::byte, 24> hello;
      receiveAll(socket.fd(), hello, 1, giveUp);
      sendAll(socket.fd(), answer, {}, giveUp);
    } catch (const Error&) {
      // The rank has hung up; that is what it is to do.
    }
  });
  try {
    join(leader, 1, 3, std::chrono::steady_clock::now() + std::chrono::seconds(5), nullptr, nullptr,
         kHost);
  } catch (const Error&) {
  }
  accepts.join();
}

void fromCaller(Input input) {
  const auto how = input.take<uint8_t>();
  Leader leader(Leader::Reach::OneHost, kHost);
  const std::string name(leader.address().socketName.data());
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  const auto said = rest(input);
  Socket kept;
  std::thread caller([&] {
    try {
      Socket socket = (how & 1) != 0 ? callLocal(name, leader.address().key, soon).socket
                                     : connectAbstract(name, soon);
      if (!socket) return;
      const UniqueFd brings = openOwnPidFd();
      const int fds[] = {brings.get()};
      sendAll(socket.fd(), said, fds, soon);
      if ((how & 2) != 0) kept = std::move(socket);
    } catch (const Error&) {
      // The leader has hung up.
    }
  });
  try {
    leader.gather(3, createSharedMemory("fuzz", 4096), soon);
    require(false, "one caller is not two");
  } catch (const Error& error) {
    require(error.kind() != ErrorKind::Unsupported, "callers do not change what is supported");
  }
  caller.join();
}

void places(Input input) {
  std::vector<NetAddress> own, peer;
  for (int i = 0; i < 4 && !input.empty(); ++i) {
    own.push_back(input.take<NetAddress>());
    peer.push_back(input.take<NetAddress>());
  }
  for (const bool sameMachine : {false, true}) {
    const auto order = byReach(peer, own, sameMachine);
    require(order.size() <= peer.size(), "no address is made up");
    for (const NetAddress& address : order) {
      address.text();
      sockaddr_storage storage;
      require(address.to(storage) <= sizeof storage, "an address fits");
    }
  }
}

void placesTold(Input input) {
  const auto bytes = rest(input);
  try {
    const Places places = Places::received({bytes.begin(), bytes.end()}, 3, 1);
    require(places.size() >= 1 && places.size() <= 3, "a rank is listed once");
    int before = -1;
    for (int i = 0; i < places.size(); ++i) {
      require(places[i].rank > before && places[i].rank < 3, "ranks are in order");
      before = places[i].rank;
      places.addressesOf(i);
      places.describe(i);
    }
    require(places.hosts().size() == static_cast<size_t>(places.size()), "each has a host");
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::Mismatch, "the error is another rank's");
  }
}

}  // namespace
}  // namespace ctran::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ctran::testing;
  if (size > 8000) return 0;
  Input input(data, size);
  switch (input.take<uint8_t>() % 5) {
    case 0:
      fromStore(input);
      break;
    case 1:
      fromLeader(input);
      break;
    case 2:
      fromCaller(input);
      break;
    case 3:
      places(input);
      break;
    default:
      placesTold(input);
  }
  return 0;
}
