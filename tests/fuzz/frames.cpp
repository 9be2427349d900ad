// A rank that has proved the key, and then sends anything. The input is a program of bytes:
//
//   0        the peer says a frame: type, bytes (2), queue, buffer, sequence, offset (4), payload
//   1 n ...  the peer says n bytes as they are
//   2        this rank binds memory to a message: queue, buffer, sequence, size (4)
//   3        this rank sends a message: the same
//   4 i      this rank lets go of its i-th message
//   5        the peer hangs up
//   6        the peer calls once more, and opens that connection
//   7        the peer says a frame on it: as 0
//   8        the peer hangs up there
//   other    this rank polls
#include "ctran/transport/tcp/frame.h"

#include <vector>

#include "ctran/transport/tcp/failure.h"
#include "ctran/transport/tcp/transport.h"
#include "tests/fuzz/input.h"

namespace ctran::testing {
namespace {

constexpr size_t kLargest = 200'000;

/// Rank 0 of a world of two; rank 1 is the input.
class Pair : public TcpTransport::Listener {
 public:
  Pair() : board_(memory(), 0, 2, false) {
    Hosts hosts;
    hosts.key = randomKey();
    NetAddress loopback;
    loopback.family = 4;
    loopback.ip = {127, 0, 0, 1};
    hosts.acceptor = std::make_unique<Acceptor>(std::vector{loopback}, hosts.key, 0, 2);
    Place first, second;
    second.rank = 1;
    hosts.places = Places::merged(std::array{Places(first, {}), Places(second, {})});
    key_ = hosts.key;
    addresses_ = hosts.acceptor->addresses();
    transport_ = std::make_unique<TcpTransport>(board_, std::move(hosts), *this);
    peer_ = call(Purpose::Link);
  }

  void callAgain() {
    if (second_ || transport_->connections() != 1) return;
    second_ = call(Purpose::More);
    FrameHeader opened;
    opened.type = FrameType::Opened;
    if (second_) say(second_, std::as_bytes(std::span(&opened, 1)));
  }

  void failed(const Error& error) override {
    require(error.kind() != ErrorKind::InvalidArgument, "no peer's fault is a bad argument");
    ++failures_;
  }
  void wakeUp() override {}  // nobody sleeps here

  void say(std::span<const std::byte> bytes) { say(peer_, bytes); }
  void say(const TcpSocket& socket, std::span<const std::byte> bytes) {
    while (!bytes.empty() && socket && transport_->connections() == 1) {
      const IoResult written = writeSome(socket, bytes);
      if (written.end == IoResult::End::Failed) return;
      bytes = bytes.subspan(written.bytes);
      transport_->poll();
      drain();
    }
  }

  void sayFrame(Input& input, bool first) {
    const TcpSocket& socket = first ? peer_ : second_;
    FrameHeader frame;
    frame.type = static_cast<FrameType>(input.take<uint8_t>());
    frame.bytes = input.take<uint16_t>();
    frame.name = nameFrom(input);
    frame.offset = static_cast<uint64_t>(static_cast<int64_t>(input.take<int32_t>()));
    frame.signature = frame.what = frame.count = frame.offset;
    say(socket, std::as_bytes(std::span(&frame, 1)));
    // What the input leaves out of the payload is not said: the next bytes are taken for it.
    say(socket, input.bytes(frame.bytes));
  }

  void bind(Input& input, bool sends) {
    const MessageName name = nameFrom(input);
    for (const auto& slot : slots_) {
      // The engine never uses a name twice.
      if (slot.sends == sends && slot.name == name) return;
    }
    const size_t bytes = input.take<uint32_t>() % kLargest;
    Slot slot{name, sends, std::vector<std::byte>(bytes), nullptr};
    OperationRecord operation;
    operation.signature = 7;
    if (sends) {
      slot.message = transport_->send(name, 1, slot.memory.data(), bytes, operation);
    } else {
      slot.message = transport_->receive(name, 1, slot.memory.data(), bytes, operation);
    }
    slots_.push_back(std::move(slot));
  }

  void letGo(size_t i) {
    if (slots_.empty()) return;
    Slot& slot = slots_[i % slots_.size()];
    slot.message.reset();
    slot.memory.clear();
    slot.memory.shrink_to_fit();  // who still writes there is found out
  }

  void hangUp() { peer_.close(); }
  void hangUpAgain() { second_.close(); }
  void poll() {
    transport_->poll();
    drain();
  }
  bool lost() const { return failures_ > 0; }

 private:
  struct Slot {
    MessageName name;
    bool sends;
    std::vector<std::byte> memory;
    std::unique_ptr<Transmission> message;
  };

  static std::shared_ptr<SharedMapping> memory() {
    return SharedMapping::map(createSharedMemory("fuzz", Board::bytesFor(1)), Board::bytesFor(1));
  }

  TcpSocket call(Purpose purpose) {
    Connector caller(addresses_, key_, {1, 2, 0, purpose});
    auto state = Connector::State::Pending;
    while ((state = caller.poll()) == Connector::State::Pending) transport_->poll();
    return state == Connector::State::Welcome ? caller.takeSocket() : TcpSocket();
  }

  static MessageName nameFrom(Input& input) {
    MessageName name;
    name.queue = input.take<uint8_t>() % (kQueues + 1);
    name.buffer = input.take<uint8_t>();
    name.sequence = input.take<uint8_t>();
    if (name.queue == kQueues) name.queue = 0;
    return name;
  }

  void drain() {
    static std::byte nowhere[1 << 16];
    while (peer_ && readSome(peer_, nowhere).bytes > 0) continue;
    while (second_ && readSome(second_, nowhere).bytes > 0) continue;
  }

  Board board_;
  std::unique_ptr<TcpTransport> transport_;
  JobKey key_;
  std::vector<NetAddress> addresses_;
  TcpSocket peer_, second_;
  std::vector<Slot> slots_;
  int failures_ = 0;
};

}  // namespace
}  // namespace ctran::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ctran;
  testing::Input input(data, size);
  parseFailure(std::string(testing::textOf(data, size)), 1, 2);
  testing::Pair pair;
  for (int steps = 0; !input.empty() && steps < 200; ++steps) {
    switch (input.take<uint8_t>()) {
      case 0:
        pair.sayFrame(input, true);
        break;
      case 1:
        pair.say(input.bytes(input.take<uint8_t>()));
        break;
      case 2:
        pair.bind(input, false);
        break;
      case 3:
        pair.bind(input, true);
        break;
      case 4:
        pair.letGo(input.take<uint8_t>());
        break;
      case 5:
        pair.hangUp();
        break;
      case 6:
        pair.callAgain();
        break;
      case 7:
        pair.sayFrame(input, false);
        break;
      case 8:
        pair.hangUpAgain();
        break;
      default:
        pair.poll();
    }
  }
  for (int i = 0; i < 4; ++i) pair.poll();
  return 0;
}
