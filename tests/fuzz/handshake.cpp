// Both sides of the handshake, whose other end is the input: a byte says which side (bit 0), and
// whether the other end knows the key (bit 1); then what it says. What has to be proved is proved
// for it if it knows the key, which no input could do by itself.
#include "ctran/bootstrap/handshake.h"

#include <sys/socket.h>

#include <vector>

#include "ctran/base/error.h"
#include "tests/fuzz/input.h"

namespace ctran::testing {
namespace {

const JobKey kKey = [] {
  JobKey key{};
  key[3] = std::byte{9};
  return key;
}();
const Introduction kWho{1, 4, 0, Purpose::Link};

NetAddress loopback() {
  NetAddress address;
  address.family = 4;
  address.prefix = 8;
  address.ip = {127, 0, 0, 1};
  return address;
}

/// Reads what the other side says, as much as `to` takes; false if that never comes.
bool hear(const TcpSocket& socket, std::span<std::byte> to, const std::function<void()>& drive) {
  for (int i = 0; i < 1000 && !to.empty(); ++i) {
    drive();
    const IoResult read = readSome(socket, to);
    if (read.end == IoResult::End::Closed || read.end == IoResult::End::Failed) return false;
    to = to.subspan(read.bytes);
  }
  return to.empty();
}

void callAcceptor(Input input, bool knowsKey) {
  static Acceptor acceptor({loopback()}, kKey, 0, 4);
  int welcome = 0;
  const auto drive = [&] {
    acceptor.poll(
        [&](const Introduction& who) {
          require(knowsKey, "who is heard has proved the key");
          require(who.size == 4 && who.target == 0 && who.rank > 0 && who.rank < 4,
                  "who is heard fits in");
          return Verdict::Welcome;
        },
        [&](const Introduction&, TcpSocket) { ++welcome; });
  };
  const TcpSocket socket = beginConnect(acceptor.addresses().front());
  Challenge challenge;
  if (!hear(socket, std::as_writable_bytes(std::span(&challenge, 1)), drive)) return;
  if (knowsKey) {
    Hello hello;
    hello.who = kWho;
    hello.who.rank = input.take<int8_t>();
    hello.who.size = input.take<uint8_t>() % 8;
    hello.who.target = input.take<int8_t>();
    hello.who.purpose = static_cast<Purpose>(input.take<uint8_t>());
    hello.proof = proofOf(kKey, challenge, hello);
    writeSome(socket, std::as_bytes(std::span(&hello, 1)));
    VerdictMessage verdict;
    hear(socket, std::as_writable_bytes(std::span(&verdict, 1)), drive);
  }
  while (!input.empty()) {
    writeSome(socket, input.bytes(input.take<uint8_t>()));
    drive();
  }
  drive();
  require(welcome <= (knowsKey ? 1 : 0), "nobody is let in twice, or without the key");
}

void answerCaller(Input input, bool knowsKey) {
  static std::vector<NetAddress> addresses{loopback()};
  static const TcpSocket listener = listenTcp(addresses);
  Connector caller(addresses, kKey, kWho);
  TcpSocket socket;
  for (int i = 0; i < 1000 && !socket; ++i) socket = acceptTcp(listener);
  if (!socket) return;
  Challenge challenge;
  if (knowsKey) {
    writeSome(socket, std::as_bytes(std::span(&challenge, 1)));
    Hello hello;
    if (!hear(socket, std::as_writable_bytes(std::span(&hello, 1)), [&] { caller.poll(); })) return;
    require(hello.who.rank == kWho.rank, "a caller says who it is");
    VerdictMessage verdict;
    verdict.verdict = static_cast<Verdict>(input.take<uint8_t>());
    verdict.proof = proofOf(kKey, challenge, hello, verdict.verdict);
    writeSome(socket, std::as_bytes(std::span(&verdict, 1)));
  }
  while (!input.empty()) {
    writeSome(socket, input.bytes(input.take<uint8_t>()));
    caller.poll();
  }
  socket.close();
  auto state = Connector::State::Pending;
  for (int i = 0; i < 100 && state == Connector::State::Pending; ++i) {
    state = caller.poll();
    if (TcpSocket again = acceptTcp(listener)) again.close();
  }
  require(knowsKey || state != Connector::State::Welcome, "only who knows the key can welcome");
  while (TcpSocket again = acceptTcp(listener)) again.close();
}

}  // namespace
}  // namespace ctran::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ctran::testing;
  if (size > 1000) return 0;
  Input input(data, size);
  const auto how = input.take<uint8_t>();
  try {
    ((how & 1) != 0 ? callAcceptor : answerCaller)(input, (how & 2) != 0);
  } catch (const ctran::Error&) {
    // Thousands of connections a second: the system may have no port left.
  }
  return 0;
}
