#include "ctran/engine/gpu_direct.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/config.h"
#include "ctran/base/log.h"
#include "ctran/base/text.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/gpu/discard.h"
#include "ctran/gpu/runtime.h"
#include "ctran/os/process.h"
#include "ctran/rdma/nearest.h"

namespace ctran {
namespace {

using std::chrono::milliseconds;

enum DirectMode : uint32_t { kDirectAuto, kDirectOff, kDirectOn };
const ConfigChoice kDirect{
    "CTRAN_GPU_DIRECT", "auto|off|on", "auto",
    "Whether RDMA devices read and write the memory of GPUs themselves (GPUDirect RDMA), where a "
    "communicator of GPUs spans domains: all_gather, all_to_all and broadcast on rails. auto: "
    "where all ranks can. off: what goes between domains passes the host's memory; one rank that "
    "says so is enough. on: a communicator whose ranks cannot is an error. Takes four times "
    "CTRAN_GPU_HOSTS_STEP_BYTES of each GPU's memory."};

/// Each rank has a connection of its own to the ranks of its rail, with queues and a descriptor at
/// each RDMA device.
constexpr int kMostDomains = 64;
constexpr size_t kAreaSteps = 4;
/// The largest page of a host: dma-bufs are of whole pages.
constexpr size_t kAreaGrain = 64 << 10;
constexpr size_t kMostProbed = 16 << 10;
/// What is written into memory that does not work never comes.
constexpr std::chrono::seconds kDirectPatience{20};
/// How often a thread that waits for the devices looks whether the communicator has ended.
constexpr milliseconds kDirectLook{10};
/// How long a failed transfer waits for a party that knows better what has happened.
constexpr milliseconds kDirectGrace{1000};

/// An older driver does not know it: then 0.
int attributeIfKnown(int device, gpu::DeviceAttribute which) {
  const gpu::Device handle = gpu::deviceHandle(device);
  int value = 0;
  return gpu::Driver::get().deviceGetAttribute(&value, which, handle) == gpu::kSuccess ? value : 0;
}

/// What a rank says of a step of creation.
struct DirectStanding {
  uint32_t mode;
  bool failed;
  char why[400];
};

/// What a rank says when the ranks of its rail meet.
struct RailStep {
  uint64_t number;  ///< of the step
  uint64_t bytes;
  uint32_t kind;
  uint32_t root;  ///< a domain
  bool operator==(const RailStep&) const = default;
};

std::string railStepText(const RailStep& one) {
  const auto kind = static_cast<CollectiveKind>(one.kind);
  return "step " + std::to_string(one.number) + " (" +
         (movesOnRails(kind) ? std::string(nameOf(kind)) : "no operation") + ", " +
         std::to_string(one.bytes) + " bytes)";
}

Error uselessOffer(int rank, const std::string& why) {
  return {ErrorKind::System,
          "what rank " + std::to_string(rank) + " says of its GPU's memory is of no use: " + why,
          {rank},
          "new_comm"};
}

}  // namespace

bool movesOnRails(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::AllToAll ||
         kind == CollectiveKind::Broadcast;
}

/// A step has the same places in all areas: what fits into this rank's fits into one as large.
RdmaRemote offeredArea(std::string_view key, size_t bytes, int rank) {
  RdmaKey parsed;
  try {
    parsed = RdmaKey::parse(key);
  } catch (const Error& error) {
    throw uselessOffer(rank, error.message());
  }
  if (parsed.bytes != bytes) {
    throw uselessOffer(
        rank, "it has " + std::to_string(parsed.bytes) + " bytes, not " + std::to_string(bytes));
  }
  return {parsed.address, parsed.bytes, parsed.text()};
}

/// The end of its memory is discard().
struct GpuDirect::Area {
  Area(int device, size_t bytes)
      : device(device), bytes((bytes + kAreaGrain - 1) / kAreaGrain * kAreaGrain) {
    const gpu::DeviceGuard guard(device);
    const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
    gpu::check(gpu::Driver::get().memAlloc(&address, this->bytes), "cuMemAlloc");
  }
  ~Area() {
    gpu::discard(device, [address = address] { gpu::Driver::get().memFree(address); });
  }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  const int device;
  const size_t bytes;
  gpu::DevicePtr address = 0;
};

/// How to reach a rank's area, as it tells one peer.
struct GpuDirect::Offer {
  char url[2048];
  char key[512];
};

struct GpuDirect::Peer {
  int rank = 0;
  int domain = 0;
  std::unique_ptr<RdmaTransport> transport;
  RdmaRemote area;
};

GpuDirect::GpuDirect(std::shared_ptr<Communicator> network, int device, size_t stepBytes)
    : network_(std::move(network)),
      domains_(network_->map()),
      device_(device),
      stepBytes_(stepBytes),
      process_(processToken()) {}

GpuDirect::~GpuDirect() {
  if (process_ == processToken()) return;
  // A forked child has only a copy.
  static_cast<void>(area_.release());
  static_cast<void>(new auto(std::move(registration_)));
  static_cast<void>(new auto(std::move(peers_)));
}

std::shared_ptr<GpuDirect> GpuDirect::create(std::shared_ptr<Communicator> network, int device,
                                             size_t stepBytes, WaitHooks* hooks,
                                             std::string& whyNot) {
  std::shared_ptr<GpuDirect> made(new GpuDirect(std::move(network), device, stepBytes));
  const std::function<void()> steps[] = {[&] { made->look(); }, [&] { made->open(); },
                                         [&] { made->connect(hooks); },
                                         [&] { made->probe(hooks); }};
  for (const auto& step : steps) {
    whyNot = made->agree(hooks, step);
    if (!whyNot.empty()) return nullptr;
  }
  return made;
}

/// Why not all ranks have done the step; empty if they have.
std::string GpuDirect::agree(WaitHooks* hooks, const std::function<void()>& step) const {
  DirectStanding own{static_cast<uint32_t>(kDirect.index()), false, {}};
  try {
    step();
  } catch (const Error& error) {
    own.failed = true;
    copyText(own.why, error.message());
  }
  const auto all = exchangeAll(*network_, own, {}, hooks);
  const auto failed = std::find_if(all.begin(), all.end(), [](const auto& r) { return r.failed; });
  if (failed == all.end()) return {};
  const int rank = static_cast<int>(failed - all.begin());
  const std::string why =
      "rank " + std::to_string(rank) + ": " + printable(boundedText(failed->why));
  const auto on =
      std::find_if(all.begin(), all.end(), [](const auto& r) { return r.mode == kDirectOn; });
  if (on == all.end()) return why;
  throw Error(ErrorKind::Unsupported,
              "rank " + std::to_string(on - all.begin()) +
                  " insists on GPUDirect RDMA (CTRAN_GPU_DIRECT=on), and not all ranks can: " + why,
              {rank}, "new_comm", "CTRAN_GPU_DIRECT=auto goes through the host's memory then");
}

/// What can be told without memory and connections.
void GpuDirect::look() {
  const auto require = [](bool holds, const std::string& else_) {
    if (!holds) throw Error(ErrorKind::Unsupported, else_);
  };
  require(kDirect.index() != kDirectOff, "CTRAN_GPU_DIRECT is off");
  require(IbSettings::fromEnvironment().enabled, "CTRAN_IB is off");
  require(domains_.hosts() <= kMostDomains,
          "there are more than " + std::to_string(kMostDomains) + " domains");
  std::string why;
  require(RdmaTransport::supported(&why), why);
  require(attributeIfKnown(device_, gpu::DeviceAttribute::GpuDirectRdma) != 0 ||
              attributeIfKnown(device_, gpu::DeviceAttribute::DmaBuf) != 0,
          "RDMA devices do not reach the memory of this GPU, as its driver says");
  flushes_ = attributeIfKnown(device_, gpu::DeviceAttribute::GpuDirectRdmaWritesOrdering) <
             gpu::kOrderedForOwner;
  require(!flushes_ || (attributeIfKnown(device_, gpu::DeviceAttribute::GpuDirectRdmaFlushOptions) &
                        gpu::kFlushByHost) != 0,
          "what RDMA devices write can neither be flushed on this GPU, nor is it in order");
  require(!flushes_ || gpu::Driver::get().flushGPUDirectRDMAWrites != nullptr,
          "this NVIDIA driver has no cuFlushGPUDirectRDMAWrites");
}

/// Memory, its registration, and the ends of connections.
void GpuDirect::open() {
  area_ = std::make_unique<Area>(device_, kAreaSteps * stepBytes_);
  if (domains_.index() >= domains_.rails()) return;
  registration_ = RdmaRegistration::of(gpu::pointerTo(area_->address), area_->bytes, device_);
  const RdmaDevices& devices = registration_->devices();
  RdmaOptions options;
  nearest_ = options.devices =
      nearestDevices(devices, placeOfGpu(device_, devices[0].settings().sysfs));
  for (int d = 0; d < domains_.hosts(); ++d) {
    if (d == domains_.host()) continue;
    Peer peer;
    peer.rank = domains_.ranks(d)[static_cast<size_t>(domains_.index())];
    peer.domain = d;
    peer.transport = std::make_unique<RdmaTransport>(options);
    peers_.push_back(std::move(peer));
  }
}

void GpuDirect::connect(WaitHooks* hooks) {
  const auto domains = static_cast<size_t>(domains_.hosts());
  std::vector<Offer> own(domains), theirs(domains);
  for (const Peer& peer : peers_) {
    Offer& offer = own[static_cast<size_t>(peer.domain)];
    copyText(offer.url, peer.transport->bind());
    copyText(offer.key, registration_->key().text());
  }
  Collective exchange;
  exchange.kind = CollectiveKind::AllToAll;
  exchange.type = DataType::Opaque1;
  exchange.count = sizeof(Offer);
  exchange.onRail = true;
  exchange.input = reinterpret_cast<const std::byte*>(own.data());
  exchange.output = reinterpret_cast<std::byte*>(theirs.data());
  network_->run(exchange, {}, hooks);
  for (Peer& peer : peers_) {
    const Offer& offer = theirs[static_cast<size_t>(peer.domain)];
    peer.area = offeredArea(boundedText(offer.key), area_->bytes, peer.rank);
    try {
      peer.transport->connect(boundedText(offer.url));
    } catch (const Error& error) {
      throw uselessOffer(peer.rank, error.message());
    }
  }
}

/// A pattern through every connection, from GPU to GPU: what registers need not work.
void GpuDirect::probe(WaitHooks* hooks) {
  if (peers_.empty()) return;
  const Blocking blocking(hooks);
  const gpu::Driver& driver = gpu::Driver::get();
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::DeviceGuard guard(device_);
  const gpu::RelaxedCapture relaxed(runtime);
  const gpu::OwnStream stream(runtime, device_, false);
  const size_t bytes =
      std::min<size_t>(kMostProbed, stepBytes_ / static_cast<size_t>(domains_.hosts()));
  const auto placeOf = [&](int domain) { return stepBytes_ + static_cast<size_t>(domain) * bytes; };
  const auto pattern = [&](int rank) {
    std::vector<unsigned char> made(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      made[i] =
          static_cast<unsigned char>((i * 31 + i / 251 + static_cast<size_t>(rank) * 97) % 255 + 1);
    }
    return made;
  };
  const auto own = pattern(network_->rank());
  gpu::check(driver.memcpyHtoDAsync(area_->address, own.data(), bytes, stream.get()),
             "cuMemcpyHtoDAsync");
  gpu::check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
  exchange(
      [&](const Peer&) {
        return Part{0, placeOf(domains_.host()), bytes, true};
      },
      Clock::now() + kDirectPatience);
  std::vector<unsigned char> found(bytes);
  for (const Peer& peer : peers_) {
    gpu::check(driver.memcpyDtoHAsync(found.data(), area_->address + placeOf(peer.domain), bytes,
                                      stream.get()),
               "cuMemcpyDtoHAsync");
    gpu::check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
    if (found == pattern(peer.rank)) continue;
    throw Error(ErrorKind::Unsupported, "what an RDMA device wrote from the GPU of rank " +
                                            std::to_string(peer.rank) +
                                            " into this one's did not arrive");
  }
}

std::byte* GpuDirect::area(size_t bytes) const {
  if (bytes <= area_->bytes) return static_cast<std::byte*>(gpu::pointerTo(area_->address));
  throw Error(ErrorKind::System, "a step has " + std::to_string(bytes) +
                                     " bytes, and the area in the GPU's memory " +
                                     std::to_string(area_->bytes));
}

size_t GpuDirect::offsetOf(const std::byte* place, size_t bytes) const {
  const size_t offset = gpu::addressOf(place) - area_->address;
  if (isInside(offset, bytes, area_->bytes)) return offset;
  throw Error(ErrorKind::System, "a step lies outside the area in the GPU's memory");
}

void GpuDirect::run(const Collective& c, std::chrono::nanoseconds timeout) {
  const Clock::time_point until = Clock::now() + timeout;
  meet(c, timeout);
  if (peers_.empty()) return;
  const size_t bytes = c.blockBytes();
  const auto domains = static_cast<size_t>(domains_.hosts());
  const auto own = static_cast<size_t>(domains_.host());
  if (c.kind == CollectiveKind::Broadcast) {
    const size_t at = offsetOf(c.output, bytes);
    return exchange(
        [&](const Peer& peer) {
          return Part{at, at, c.root == domains_.host() ? bytes : 0, c.root == peer.domain};
        },
        until);
  }
  const bool isDealt = c.kind == CollectiveKind::AllToAll;
  const size_t from = offsetOf(c.input, bytes * (isDealt ? domains : 1));
  const size_t to = offsetOf(c.output, bytes * domains) + own * bytes;
  exchange(
      [&](const Peer& peer) {
        return Part{from + (isDealt ? static_cast<size_t>(peer.domain) * bytes : 0), to, bytes,
                    true};
      },
      until);
}

/// Until this returns, the peers may still read what came in earlier steps.
void GpuDirect::meet(const Collective& c, std::chrono::nanoseconds timeout) {
  const RailStep own{++steps_, c.blockBytes(), static_cast<uint32_t>(c.kind),
                     static_cast<uint32_t>(c.root)};
  std::vector<RailStep> all(static_cast<size_t>(domains_.hosts()));
  Collective exchange;
  exchange.kind = CollectiveKind::AllGather;
  exchange.type = DataType::Opaque1;
  exchange.count = sizeof own;
  exchange.onRail = true;
  exchange.input = reinterpret_cast<const std::byte*>(&own);
  exchange.output = reinterpret_cast<std::byte*>(all.data());
  network_->run(exchange, timeout);
  for (const Peer& peer : peers_) {
    const RailStep& theirs = all[static_cast<size_t>(peer.domain)];
    if (theirs == own) continue;
    throw Error(ErrorKind::Mismatch,
                "between the domains rank " + std::to_string(peer.rank) + " is in " +
                    railStepText(theirs) + ", and rank " + std::to_string(network_->rank()) +
                    " in " + railStepText(own),
                {peer.rank}, std::string(nameOf(c.kind)));
  }
}

void GpuDirect::exchange(const PartOf& partOf, Clock::time_point until) {
  std::vector<RdmaFuture> sent(peers_.size()), came(peers_.size());
  const auto wait = [&](std::vector<RdmaFuture>& futures, const auto& counts) {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (counts(partOf(peers_[i]))) await(futures[i], peers_[i], until);
    }
  };
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Peer& peer = peers_[i];
    const Part part = partOf(peer);
    // One notice for each step in which something comes: they cannot be taken for one another, as
    // nobody is a step ahead of who has not met him.
    if (part.comes) came[i] = peer.transport->waitForWrite();
    if (part.bytes == 0) continue;
    RdmaRemote there = peer.area;
    there.address += part.to;
    there.bytes -= part.to;
    sent[i] = peer.transport->write(
        spanOf(registration_, gpu::pointerTo(area_->address + part.from), part.bytes), there,
        /*notify=*/true);
  }
  wait(came, [](const Part& part) { return part.comes; });
  if (std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return partOf(p).comes; })) {
    flush();
  }
  wait(sent, [](const Part& part) { return part.bytes > 0; });
}

/// Waits for a transfer with that peer.
void GpuDirect::await(const RdmaFuture& end, const Peer& peer, Clock::time_point until) const {
  const auto throwIfBroken = [&] {
    if (network_->isAborted()) network_->core().throwIfFailed();
  };
  while (!end.waitFor(kDirectLook)) {
    throwIfBroken();
    if (Clock::now() < until) continue;
    throw Error(ErrorKind::Timeout,
                "a transfer between the GPUs of rank " + std::to_string(network_->rank()) +
                    " and of rank " + std::to_string(peer.rank) + " has not ended in time",
                {peer.rank});
  }
  const RdmaOutcome failed = end.outcome();
  if (!failed) return;
  for (const auto grace = Clock::now() + kDirectGrace; Clock::now() < grace;) {
    throwIfBroken();
    std::this_thread::sleep_for(kDirectLook);
  }
  throw Error(failed->kind(),
              "between the GPUs of rank " + std::to_string(network_->rank()) + " and of rank " +
                  std::to_string(peer.rank) + ": " + failed->message(),
              {peer.rank});
}

/// The order of what a stream and an RDMA device do with the area.
///
/// Before: a stream hands a step over behind the copies that fill the area. A function of the host
/// runs when they have ended, and cuStreamWriteValue32 has a fence for the system before it; so the
/// devices, which are told to read after that, read what was copied.
///
/// After: this thread has seen the notice, which a device puts into the host's memory behind the
/// data that it has written before. That says that the data are on their way to the GPU, not that
/// the GPU sees them: the ways of both part at the root complex. Where the driver says that the
/// GPU itself takes such writes in order for what runs on it (kOrderedForOwner), nothing is to be
/// done; else cuFlushGPUDirectRDMAWrites returns when they are visible there. Only then is the
/// stream, which waits for a word in the host's memory, let go on.
void GpuDirect::flush() const {
  if (!flushes_) return;
  const gpu::DeviceGuard guard(device_);
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  gpu::check(
      gpu::Driver::get().flushGPUDirectRDMAWrites(gpu::kFlushCurrentContext, gpu::kFlushToOwner),
      "cuFlushGPUDirectRDMAWrites");
}

std::string GpuDirect::devices() const {
  std::string names;
  for (const size_t i : nearest_) {
    names += (names.empty() ? "" : ", ") + registration_->devices()[i].name();
  }
  return names;
}

}  // namespace ctran
