#include "link.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "ctran/base/work.h"
#include "engine_errors.h"
#include "exposed.h"
#include "mscclpp/atomic_device.hpp"
#include "mscclpp/env.hpp"
#include "service_thread.h"

namespace mscclpp {
namespace {

using ctran::CollectiveKind;
using ctran::api::Call;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// How long a goodbye may take, and how long the other end's is waited for.
constexpr milliseconds kGoodbye{2000};
/// How long a failure to send waits for what the service thread knows better.
constexpr milliseconds kReason{500};
/// Ranks say nothing for hours: the engine cuts this to what it can count.
constexpr nanoseconds kForEver = nanoseconds::max();

nanoseconds timeout() { return std::chrono::seconds(env()->timeoutSeconds); }

/// What `breaksOff` ends waits with.
struct BrokenOff {};

class Breakable final : public ctran::WaitHooks {
 public:
  explicit Breakable(const std::atomic<bool>& breaksOff) : breaksOff_(breaksOff) {}
  void interrupted() override {
    if (breaksOff_.load()) throw BrokenOff();
  }

 private:
  const std::atomic<bool>& breaksOff_;
};

Call transfer(CollectiveKind kind, uint64_t bytes, int peer) {
  Call call;
  call.kind = kind;
  call.count = bytes;
  call.root = peer;
  return call;
}

/// What the other end says of itself, without what is no text.
std::string printable(std::span<const char> text) {
  std::string result;
  for (const char c : text) result += c >= ' ' && c <= '~' ? c : '?';
  return result;
}

/// What the engine says of the way to the other rank; empty while it does not know.
std::string pathTo(const ctran::api::Communicator& engine) {
  const std::string json = engine.explain(CollectiveKind::Barrier, 0, ctran::DataType::UInt8).json;
  const std::string key = "\"rank " + std::to_string(1 - engine.rank()) + ": ";
  const size_t begin = json.find(key);
  if (begin == std::string::npos) return {};
  const size_t from = begin + key.size();
  return json.substr(from, json.find('"', from) - from);
}

/// That way, as both ends tell each other.
struct Path {
  enum Kind : uint32_t { Unknown, Rdma, Other };
  uint32_t kind = Unknown;
  uint32_t isLate = 0;
  std::array<char, 248> text{};

  static Path of(const ctran::api::Communicator& engine) {
    Path path;
    const std::string text = pathTo(engine);
    text.copy(path.text.data(), path.text.size() - 1);
    const bool isOpen = text.empty() || text == "TCP" || text == "TCP: RDMA is not agreed yet";
    path.kind = isOpen ? Unknown : text.starts_with("RDMA") ? Rdma : Other;
    return path;
  }
};

}  // namespace

Link::Link(std::unique_ptr<ctran::api::InitPoint> initPoint, const EndpointName& local,
           const EndpointName& remote)
    : initPoint_(std::move(initPoint)),
      local_(local),
      remote_(remote),
      process_(ownProcessToken()) {
  if (local_.gpu >= 0) {  // before any kernel waits for this end
    translated([this] {
      placing_.prepare(local_.gpu);
      fetching_.prepare(local_.gpu);
    });
  }
  thread_ = serviceThread([this] { serve(); });
}

Link::~Link() {
  if (process_ != ownProcessToken()) {
    thread_.detach();  // it is the parent's
    return;
  }
  bool isOpen;
  {
    const std::lock_guard lock(mutex_);
    isOpen = state_ == State::Open;
  }
  if (isOpen) {
    sayGoodbye({});
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kGoodbye, [this] { return hasThreadEnded_; });
  }
  breaksOffReceive_.store(true);
  thread_.join();
  end("the connection to " + peer() + " was closed here", ErrorCode::Aborted, WaitEnd::Closed);
}

std::string Link::peer() const {
  const int rank = peer_.load();
  const std::string process = "process " + std::to_string(remote_.owner.pid) +
                              (remote_.owner.isOfThisHost() ? "" : " of another host");
  return rank < 0 ? process : "rank " + std::to_string(rank) + " (" + process + ")";
}

// The service thread.

void Link::serve() {
  try {
    form();
    while (receiveOne()) {
    }
  } catch (const BrokenOff&) {
    end("the connection to " + peer() + " was closed here, or memory went that it was writing to",
        ErrorCode::Aborted, WaitEnd::Failed);
    sayGoodbye("memory went while it was written to");  // unless it was said that all is done
  } catch (const ctran::Error& error) {
    endBy(error, "receiving from");
  } catch (const std::exception& error) {
    // What it asks for cannot be done: it is told why.
    end(peer() + ": " + error.what(), ErrorCode::RemoteError, WaitEnd::Failed);
    sayGoodbye(error.what());
  }
  const std::lock_guard lock(mutex_);
  hasThreadEnded_ = true;
  changed_.notify_all();
}

/// The end whose handle comes first in the alphabet sends on the first communicator.
void Link::form() {
  std::vector<std::string> handles{local_.handle.data(), remote_.handle.data()};
  const bool isFirst = handles[0] < handles[1];
  std::sort(handles.begin(), handles.end());
  ctran::api::CommunicatorOptions options;
  options.name = "mscclpp connection";
  options.timeout = 10 * timeout();  // the other end may be busy with others before it connects
  Breakable hooks(breaksOffReceive_);
  std::shared_ptr<Engine> both[2];
  for (int i = 0; i < 2; ++i) {
    both[i] =
        initPoint_->form(handles, i == 0 ? "mscclpp first" : "mscclpp second", options, &hooks);
    both[i]->setTimeout(timeout());
    if (local_.transportOf() != Transport::Ethernet) requireRdma(*both[i]);
  }
  initPoint_.reset();
  in_ = both[isFirst ? 1 : 0];
  {
    const std::lock_guard lock(sending_);
    out_ = both[isFirst ? 0 : 1];
  }
  const std::lock_guard lock(mutex_);
  if (state_ == State::Forming) state_ = State::Open;
  changed_.notify_all();
}

/// Throws unless the engine uses RDMA in both directions. Both ends tell each other what they know
/// until it is enough, and so come to the same result.
void Link::requireRdma(Engine& engine) const {
  const auto refuse = [&](const std::string& why) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "there is no " + to_string(local_.transportOf()) + " to " + peer() + ": " +
                           why + ". Transport Ethernet works without RDMA");
  };
  if (const std::vector<int> hosts = engine.hosts(); hosts[0] == hosts[1]) {
    refuse("both ends are on one host, where ranks share memory");
  }
  const auto latest = std::chrono::steady_clock::now() + timeout();
  Breakable hooks(breaksOffReceive_);
  while (true) {
    std::array<Path, 2> paths;
    paths[engine.rank()] = Path::of(engine);
    paths[engine.rank()].isLate = std::chrono::steady_clock::now() > latest ? 1 : 0;
    Call call;
    call.kind = CollectiveKind::AllGather;
    call.count = sizeof(Path);
    call.input = &paths[engine.rank()];
    call.output = paths.data();
    engine.run(call, {}, &hooks);
    for (Path& path : paths) {
      path.text.back() = '\0';
      const std::string text = path.text.data();
      if (path.kind == Path::Other) refuse(printable(text) + " (CTRAN_IB_HCA names devices)");
    }
    if (paths[0].kind == Path::Rdma && paths[1].kind == Path::Rdma) return;
    if (paths[0].isLate != 0 || paths[1].isLate != 0) {
      refuse("RDMA was not agreed within " + std::to_string(env()->timeoutSeconds) + " s");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void Link::receive(void* data, uint64_t bytes, nanoseconds timeout) {
  Call call = transfer(CollectiveKind::Recv, bytes, 1 - in_->rank());
  call.output = data;
  Breakable hooks(breaksOffReceive_);
  in_->run(call, timeout, &hooks);
}

/// Whether there will be more.
bool Link::receiveOne() {
  LinkMessage message;
  receive(&message, sizeof message, kForEver);
  if (message.magic != LinkMessage::kMagic) {
    throw Error("a message that is none of a connection", ErrorCode::InvalidUsage);
  }
  switch (message.kind) {
    case LinkMessage::Write:
      placePayload(message);
      return true;
    case LinkMessage::Update:
      placeValue(message);
      return true;
    case LinkMessage::Goodbye: {
      const size_t bytes = std::min<size_t>(message.textBytes, message.text.size());
      if (bytes == 0) {
        end(peer() + " has closed the connection", ErrorCode::RemoteError, WaitEnd::Closed);
      } else {
        end(peer() + " has refused what it was asked for, and closed the connection: " +
                printable({message.text.data(), bytes}),
            ErrorCode::RemoteError, WaitEnd::Failed);
      }
      sayGoodbye({});
      return false;
    }
    default:
      throw Error("a message of the unknown kind " + std::to_string(message.kind),
                  ErrorCode::InvalidUsage);
  }
}

void Link::placePayload(const LinkMessage& message) {
  const Placement placement(message.memory, message.offset, message.size, local_.transportOf(),
                            breaksOffReceive_);
  if (placement.gpu() >= 0) placing_.prepare(local_.gpu >= 0 ? local_.gpu : placement.gpu());
  const bool isInline = message.size <= LinkMessage::kInline;
  for (uint64_t done = 0; done < message.size;) {
    const uint64_t bytes = std::min(message.size - done, LinkMessage::kChunk);
    char* const to = placement.data() + done;
    char* const host = placement.gpu() >= 0 ? placing_.data() : to;
    if (isInline) {
      std::memcpy(host, message.text.data(), bytes);
    } else {
      receive(host, bytes, timeout());
    }
    if (placement.gpu() >= 0) placing_.place(to, bytes);
    done += bytes;
  }
}

/// All that was received before has been placed; the release tells those who acquire the value.
void Link::placeValue(const LinkMessage& message) {
  const Placement placement(message.memory, message.offset, sizeof message.value,
                            local_.transportOf(), breaksOffReceive_);
  auto* const word = reinterpret_cast<uint64_t*>(placement.data());
  if (reinterpret_cast<uintptr_t>(word) % sizeof *word != 0) {
    throw Error("a word to set that is not aligned", ErrorCode::InvalidUsage);
  }
  if (placement.gpu() < 0) return storeReleaseSystem(word, message.value);
  placing_.prepare(local_.gpu >= 0 ? local_.gpu : placement.gpu());
  placing_.set(word, message.value);
}

// The threads of the program.

void Link::checkDestination(const MemoryName& to) const {
  if (to.owner.token != remote_.owner.token) {
    throw Error("memory of process " + std::to_string(to.owner.pid) +
                    ", to which this connection does not lead: it leads to " + peer(),
                ErrorCode::InvalidUsage);
  }
  if (to.exposed == 0 || (to.transports >> local_.transport & 1) == 0) {
    throw Error(
        "the memory of " + peer() + " is not registered for " + to_string(local_.transportOf()),
        ErrorCode::InvalidUsage);
  }
}

void Link::write(const MemoryName& to, uint64_t offset, const char* from, int gpuOfSource,
                 uint64_t size) {
  checkDestination(to);
  awaitOpen();
  if (size == 0) return;
  LinkMessage message;
  message.kind = LinkMessage::Write;
  message.memory = to.exposed;
  message.offset = offset;
  message.size = size;
  const std::lock_guard lock(sending_);
  const bool isInline = size <= LinkMessage::kInline;
  if (gpuOfSource >= 0) {
    translated([&] { fetching_.prepare(local_.gpu >= 0 ? local_.gpu : gpuOfSource); });
  }
  if (!isInline) send(&message, sizeof message);
  for (uint64_t done = 0; done < size;) {
    const uint64_t bytes = std::min(size - done, LinkMessage::kChunk);
    const char* host = from + done;
    if (gpuOfSource >= 0) {
      translated([&] { fetching_.fetch(host, bytes); });
      host = fetching_.data();
    }
    if (isInline) {
      std::memcpy(message.text.data(), host, bytes);
      send(&message, sizeof message);
    } else {
      send(host, bytes);
    }
    done += bytes;
  }
}

void Link::update(const MemoryName& to, uint64_t offset, uint64_t value) {
  checkDestination(to);
  awaitOpen();
  LinkMessage message;
  message.kind = LinkMessage::Update;
  message.memory = to.exposed;
  message.offset = offset;
  message.value = value;
  const std::lock_guard lock(sending_);
  send(&message, sizeof message);
}

void Link::flush() { awaitOpen(); }

void Link::awaitOpen() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout(), [this] { return state_ != State::Forming; })) {
    throw Error("waited " + std::to_string(env()->timeoutSeconds) + " s for " + peer() +
                    " to connect: does it make its end of the connection? (MSCCLPP_TIMEOUT sets "
                    "the limit)",
                ErrorCode::Timeout);
  }
  if (state_ == State::Ended) throw Error(reason_, code_);
}

/// With `sending_` held.
void Link::send(const void* data, uint64_t bytes) {
  Call call = transfer(CollectiveKind::Send, bytes, 1 - out_->rank());
  call.input = data;
  Breakable hooks(breaksOffSend_);
  try {
    return out_->run(call, {}, &hooks);
  } catch (const BrokenOff&) {
  } catch (const ctran::Error& error) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kReason, [this] { return state_ == State::Ended; });
    }
    endBy(error, "sending to");
  }
  const std::lock_guard lock(mutex_);
  throw Error(reason_, code_);
}

/// Once; later calls, and those before both ends are connected, do nothing.
void Link::sayGoodbye(const std::string& why) noexcept {
  try {
    const std::lock_guard lock(sending_);
    if (!out_ || std::exchange(hasSaidGoodbye_, true)) return;
    LinkMessage message;
    message.kind = LinkMessage::Goodbye;
    message.textBytes = static_cast<uint32_t>(why.copy(message.text.data(), message.text.size()));
    Call call = transfer(CollectiveKind::Send, sizeof message, 1 - out_->rank());
    call.input = &message;
    out_->run(call, kGoodbye);
  } catch (...) {
    // The other end is gone, or sees that this one is.
  }
}

/// The first reason stays.
void Link::end(const std::string& why, ErrorCode code, WaitEnd kind) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::Ended) return;
    state_ = State::Ended;
    reason_ = why;
    code_ = code;
    kind_ = kind;
    for (const std::weak_ptr<WaitLimit>& known : limits_) {
      if (const auto limit = known.lock()) storeFailed(*limit, kind);
    }
    limits_.clear();
    changed_.notify_all();
  }
  breaksOffSend_.store(true);
}

void Link::endBy(const ctran::Error& error, const char* doing) {
  const bool isLost = error.kind() == ctran::ErrorKind::PeerLost;
  const bool isAborted = error.kind() == ctran::ErrorKind::Aborted;
  // The engine numbers both ends 0 and 1: what it says of those is said here in other words.
  const std::string why = isLost      ? peer() + " has ended, or is not reached any more"
                          : isAborted ? peer() + " has broken off the connection"
                                      : std::string(doing) + " " + peer() +
                                            " (the ends are numbered 0 and 1): " + error.what();
  end(why, isAborted ? ErrorCode::RemoteError : codeOf(error.kind()),
      isLost ? WaitEnd::Lost : WaitEnd::Failed);
}

void Link::ends(const std::shared_ptr<WaitLimit>& limit) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::Ended) return storeFailed(*limit, kind_);
  std::erase_if(limits_, [](const auto& known) { return known.expired(); });
  limits_.push_back(limit);
}

}  // namespace mscclpp
