#include "ctran/bootstrap/local_call.h"

#include <array>

#include "ctran/os/process.h"

namespace ctran {
namespace {

/// A listener with many callers may have been in a hurry.
constexpr int kTries = 8;
constexpr size_t kNameBytes = 12;

}  // namespace

LocalCall callLocal(const std::string& name, const JobKey& key, Deadline deadline,
                    const Interrupt& interrupt) {
  LocalCall call;
  for (int i = 0; i < kTries; ++i) {
    Socket socket = connectAbstract(name, deadline, interrupt);
    if (!socket) return {};
    call.somebodyListens = true;
    if (!peerIsTrusted(socket.fd())) {
      call.why = "a process of another user listens there";
      return call;
    }
    Connector connector(std::move(socket), key, Acceptor::kLocalCaller);
    if (awaitVerdict(connector, deadline, interrupt) == Connector::State::Welcome) {
      call.socket = connector.takeSocket();
      return call;
    }
    call.why = connector.why();
    if (!connector.somebodyListens())
      return call;  // it has not hung up: it has said something else
  }
  return call;
}

Connector::State awaitVerdict(Connector& connector, Deadline deadline, const Interrupt& interrupt) {
  while (true) {
    const Connector::State state = connector.poll();
    if (state != Connector::State::Pending) return state;
    const int fds[] = {connector.fd()};
    waitReadable(fds, deadline, interrupt);
  }
}

std::string freshSocketName() {
  std::array<std::byte, kNameBytes> random;
  fillRandom(random.data(), random.size());
  return socketName(random);
}

std::string socketName(std::span<const std::byte> bytes) {
  std::string name = "ctran-";
  for (const std::byte b : bytes.first(kNameBytes)) {
    name += "0123456789abcdef"[static_cast<int>(b) >> 4];
    name += "0123456789abcdef"[static_cast<int>(b) & 15];
  }
  return name;
}

}  // namespace ctran
