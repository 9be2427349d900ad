// A rank whose window is served, and a peer that sends it requests of any kind. The input is a byte
// that says whether they are on two hosts, if it is odd, and a program of bytes:
//
//   0  the peer sends a request: kind, offset (4, signed), bytes (4, signed), value; and as many
//      bytes as it says, if the next byte is even, otherwise one more
//   1  this rank asks for bytes of the peer's: how many (2)
//   2  the peer sends a message of so many (1) bytes where a request is awaited
//   other: a signal, until whose arrival both wait
#include <sched.h>

#include <future>
#include <vector>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/window/service.h"
#include "tests/fuzz/input.h"

namespace ctran::testing {
namespace {

constexpr size_t kMemory = 5000, kWords = 3;
constexpr std::chrono::seconds kGuard{20};

/// Rank 0 has the window; rank 1 is the input.
class Pair {
 public:
  explicit Pair(bool onTwoHosts) : memory_(kMemory) {
    const auto store = std::make_shared<MemoryStore>();
    const auto create = [&](int rank) {
      CommunicatorOptions options;
      options.rank = rank;
      options.size = 2;
      options.store = store;
      options.timeout = kGuard;
      if (onTwoHosts) options.hints["ctran::host"] = "host" + std::to_string(rank);
      return Communicator::create(options);
    };
    auto other = std::async(std::launch::async, [&] { return create(1); });
    own_ = create(0);
    peer_ = other.get();
    const WindowSignals::Words words{kWords, 0};
    const size_t bytes = WindowSignals::bytesFor(words);
    board_ = std::make_unique<WindowSignals>(
        SharedMapping::map(createSharedMemory("fuzz", bytes), bytes), words);
    service_ = std::make_shared<WindowService>(*own_, *board_, memory_, kWords,
                                               std::vector<RemoteMemory>{});
    service_->start();
  }

  ~Pair() {
    own_->abort("the end");
    while (!own_->idle()) own_->progress();
    service_.reset();
    own_->leave();
    peer_->leave();
  }

  bool broken() const { return own_->isAborted() || peer_->isAborted(); }

  void send(std::vector<std::byte> bytes) {
    const auto kept = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    Collective c;
    c.kind = CollectiveKind::Send;
    c.type = DataType::Opaque1;
    c.root = 0;
    c.count = kept->size();
    c.input = kept->data();
    try {
      peer_->post(std::move(c), kGuard, kept);
    } catch (const Error&) {
      // Broken by what it has sent before.
    }
  }

  void ask(size_t bytes) {
    const auto into = std::make_shared<std::vector<std::byte>>(bytes);
    try {
      service_->ask(1, 0, *into, kGuard, into);
    } catch (const Error&) {
    }
  }

  /// Until what was sent has been looked at, or has broken the window.
  void settle() {
    const uint64_t before = board_->count(0, 1);
    std::array<uint64_t, 4> signal{1, 0, 0, 0};
    const auto bytes = std::as_bytes(std::span(signal));
    send({bytes.begin(), bytes.end()});
    const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
    while (board_->count(0, 1) == before && !broken() && !over()) {
      require(nowNanos() < giveUp, "every request is answered, or breaks the window");
      ::sched_yield();
    }
  }
  bool over() const { return service_->goodbyes() > 0; }

 private:
  std::vector<std::byte> memory_;
  std::shared_ptr<Communicator> own_, peer_;
  std::unique_ptr<WindowSignals> board_;
  std::shared_ptr<WindowService> service_;
};

void run(Input input) {
  Pair pair(input.take<uint8_t>() % 2 == 1);
  for (int steps = 0; !input.empty() && !pair.broken() && !pair.over() && steps < 100; ++steps) {
    switch (input.take<uint8_t>()) {
      case 0: {
        std::array<uint64_t, 4> header{};
        header[0] = input.take<uint8_t>();
        header[1] = static_cast<uint64_t>(static_cast<int64_t>(input.take<int32_t>()));
        header[2] = static_cast<uint64_t>(static_cast<int64_t>(input.take<int32_t>()));
        header[3] = input.take<uint8_t>();
        const size_t extra = input.take<uint8_t>() % 2;
        const auto bytes = std::as_bytes(std::span(header));
        pair.send({bytes.begin(), bytes.end()});
        const bool follows = header[0] == 0 || header[0] == 4;  // a put, or an answer
        if (follows && header[2] > 0 && header[2] <= kMemory) {
          pair.send(std::vector<std::byte>(header[2] + extra));
        }
        break;
      }
      case 1:
        pair.ask(input.take<uint16_t>());
        break;
      case 2:
        pair.send(std::vector<std::byte>(input.take<uint8_t>()));
        break;
      default:
        pair.settle();
    }
  }
  if (!pair.broken() && !pair.over()) pair.settle();
}

}  // namespace
}  // namespace ctran::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 500) return 0;
  ctran::testing::run(ctran::testing::Input(data, size));
  return 0;
}
