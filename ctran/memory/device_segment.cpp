#include "ctran/memory/device_segment.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/text.h"
#include "ctran/bootstrap/local_call.h"
#include "ctran/gpu/runtime.h"
#include "ctran/os/process.h"
#include "ctran/os/unix_socket.h"

namespace ctran {
namespace {

using gpu::DevicePtr;

/// How long a process waits for another one's answer, and that for the question.
constexpr std::chrono::seconds kAnswerPatience{1};
constexpr std::chrono::hours kLong{24};

Deadline soon() { return std::chrono::steady_clock::now() + kAnswerPatience; }

/// The segments of this process. Leaked, because segments may outlive static objects.
struct Segments {
  std::mutex mutex;
  std::map<DevicePtr, std::weak_ptr<DeviceSegment>> byAddress;
  uint64_t last = 0;
};

Segments& segments() {
  static Segments& all = *new Segments;
  return all;
}

std::shared_ptr<DeviceSegment> byNumber(uint64_t number) {
  std::vector<std::shared_ptr<DeviceSegment>> held;  // let go of after the lock
  Segments& all = segments();
  const std::lock_guard lock(all.mutex);
  for (const auto& [address, segment] : all.byAddress) {
    held.push_back(segment.lock());
    if (held.back() && held.back()->number() == number) return held.back();
  }
  return nullptr;
}

/// Lets this process' other GPUs copy the memory, as they may copy torch's own memory.
void letPeersIn(gpu::DeviceMemory& memory, int device) {
  const gpu::Driver& driver = gpu::Driver::get();
  for (int other = 0; other < gpu::deviceCount(); ++other) {
    int can = 0;
    if (other == device || driver.deviceCanAccessPeer(&can, other, device) != gpu::kSuccess ||
        !can) {
      continue;
    }
    try {
      memory.allow(other);
    } catch (const Error& error) {
      log(LogComponent::Memory, LogLevel::Debug, "GPU %d does not reach a segment of %d: %s", other,
          device, error.what());
    }
  }
}

/// Hands descriptors over, for as long as the process runs. A child after fork() has none: a
/// process that uses a GPU cannot go on in one.
class Server {
 public:
  static const Server& get() {
    static const Server& served = *new Server;
    return served;
  }

  DeviceSegment::Ticket ticketOf(const DeviceSegment& segment) const {
    DeviceSegment::Ticket ticket{{}, key_, segment.number(), segment.size()};
    std::copy(name_.begin(), name_.end(), ticket.socket.begin());
    return ticket;
  }

 private:
  Server() : key_(randomKey()), name_(freshSocketName()), acceptor_(name_, key_) {
    startThread("ctran-segments", [this] { serve(); });
  }

  void serve() {
    const int sockets[] = {acceptor_.fd()};
    while (true) {
      try {
        waitReadable(sockets, std::chrono::steady_clock::now() + kLong);
        acceptor_.poll([](const Introduction&) { return Verdict::Welcome; },
                       [](const Introduction&, Socket caller) { answer(caller.fd()); });
      } catch (const std::exception& error) {  // of one caller; others are served
        log(LogComponent::Memory, LogLevel::Debug, "a request for GPU memory: %s", error.what());
      }
    }
  }

  static void answer(const UniqueFd& caller) {
    uint64_t number = 0;
    receiveAll(caller, std::as_writable_bytes(std::span(&number, 1)), 0, soon());
    const auto segment = byNumber(number);
    if (!segment) return;
    const UniqueFd descriptor(segment->exportHandle());
    const int sent = descriptor.get();
    const std::byte found{1};
    sendAll(caller, {&found, 1}, {&sent, 1}, soon());
  }

  const JobKey key_;
  const std::string name_;
  Acceptor acceptor_;
};

}  // namespace

std::atomic<size_t> DeviceSegment::count_{0};

DeviceSegment::DeviceSegment(int device, gpu::DeviceMemory memory, bool isAdopted)
    : device_(device),
      memory_(std::move(memory)),
      number_([] {
        Segments& all = segments();
        const std::lock_guard lock(all.mutex);
        return ++all.last;
      }()),
      isAdopted_(isAdopted) {
  ++count_;
}

std::shared_ptr<DeviceSegment> DeviceSegment::allocate(int device, size_t bytes) {
  gpu::DeviceMemory memory = gpu::DeviceMemory::allocate(device, std::max<size_t>(bytes, 1));
  letPeersIn(memory, device);
  return make(device, std::move(memory), /*isAdopted=*/false);
}

std::shared_ptr<DeviceSegment> DeviceSegment::make(int device, gpu::DeviceMemory memory,
                                                   bool isAdopted) {
  std::shared_ptr<DeviceSegment> made(new DeviceSegment(device, std::move(memory), isAdopted));
  Segments& all = segments();
  const std::lock_guard lock(all.mutex);
  all.byAddress[made->address()] = made;
  return made;
}

std::shared_ptr<void> DeviceSegment::adopt(int device, const void* address, size_t bytes) {
  std::shared_ptr<DeviceSegment> segment = find(address, bytes);
  if (segment && !segment->isAdopted_) return nullptr;
  if (!segment) {
    const DevicePtr wanted = gpu::addressOf(address);
    try {
      const gpu::DeviceGuard guard(device);
      gpu::DeviceMemory memory = gpu::DeviceMemory::retain(wanted);
      const size_t offset = wanted - memory.address();
      if (offset > memory.size() || bytes > memory.size() - offset) return nullptr;
      const UniqueFd exported(memory.exportHandle());  // throws where its owner has not foreseen it
      segment = make(device, std::move(memory), /*isAdopted=*/true);
    } catch (const Error& error) {
      log(LogComponent::Memory, LogLevel::Debug, "memory of others cannot be shared: %s",
          error.what());
      return nullptr;
    }
  }
  void* const held = segment.get();
  return {held, [segment](void*) mutable { release(std::move(segment)); }};
}

std::shared_ptr<DeviceSegment> DeviceSegment::search(const void* address, size_t bytes) {
  const DevicePtr wanted = gpu::addressOf(address);
  // Let go of after the lock: its destructor takes it, should everybody else have let go meanwhile.
  std::shared_ptr<DeviceSegment> found;
  Segments& all = segments();
  const std::lock_guard lock(all.mutex);
  const auto after = all.byAddress.upper_bound(wanted);
  if (after == all.byAddress.begin()) return nullptr;
  found = std::prev(after)->second.lock();
  if (!found) return nullptr;
  const size_t offset = wanted - found->address();
  return offset <= found->size() && bytes <= found->size() - offset ? found : nullptr;
}

DeviceSegment::Ticket DeviceSegment::ticket() const { return Server::get().ticketOf(*this); }

std::shared_ptr<gpu::DeviceMemory> DeviceSegment::open(const Ticket& ticket, int device) {
  const std::string name(boundedText(ticket.socket));
  const LocalCall call = callLocal(name, ticket.key, soon());
  if (!call.socket) {
    throw Error(ErrorKind::Unsupported,
                "the process of that GPU memory cannot be reached" +
                    (call.why.empty() ? "" : ": " + call.why),
                {}, {}, "GPU memory is shared inside one network namespace");
  }
  const UniqueFd& socket = call.socket.fd();
  sendAll(socket, std::as_bytes(std::span(&ticket.number, 1)), {}, soon());
  std::byte found{};
  const std::vector<UniqueFd> got = receiveAll(socket, {&found, 1}, 1, soon());
  return std::make_shared<gpu::DeviceMemory>(
      gpu::DeviceMemory::import(got[0].get(), ticket.bytes, device));
}

void DeviceSegment::release(std::shared_ptr<DeviceSegment> last) noexcept {
  try {
    const gpu::DeviceGuard guard(last->device_);
    const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
    gpu::check(gpu::Driver::get().ctxSynchronize(), "cuCtxSynchronize");
  } catch (const std::exception& error) {  // the device is lost
    log(LogComponent::Memory, LogLevel::Debug, "freeing a segment of GPU memory: %s", error.what());
  }
}

DeviceSegment::~DeviceSegment() {
  --count_;
  Segments& all = segments();
  const std::lock_guard lock(all.mutex);
  const auto self = all.byAddress.find(address());
  // The address may be another one's by now only after this mapping has gone, which is later.
  if (self != all.byAddress.end() && self->second.expired()) all.byAddress.erase(self);
}

}  // namespace ctran
