#include "ctran/rdma/registration.h"

#include <algorithm>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/rdma/gpu_region.h"
#include "ctran/rdma/text.h"

namespace ctran {

using namespace ibverbx;

namespace {

constexpr std::string_view kKeyPrefix = "rdma-key-1:";
constexpr size_t kLongestKey = 512;

/// Those that somebody holds.
struct Held {
  std::mutex mutex;
  std::vector<std::weak_ptr<RdmaRegistration>> all;
};
Held& held() {
  static Held& held = *new Held;  // outlives every thread of the process
  return held;
}

bool isWithin(const void* part, size_t bytes, const void* whole, size_t all) {
  return numberOf(part) >= numberOf(whole) &&
         isInside(numberOf(part) - numberOf(whole), bytes, all);
}

void requireWithin(const void* part, size_t bytes, const void* whole, size_t all) {
  if (isWithin(part, bytes, whole, all)) return;
  throw Error(ErrorKind::InvalidArgument,
              std::to_string(bytes) + " bytes at 0x" + hex(numberOf(part)) +
                  " do not lie in the RDMA memory of " + std::to_string(all) + " bytes at 0x" +
                  hex(numberOf(whole)));
}

}  // namespace

std::string RdmaKey::text() const {
  std::string text(kKeyPrefix);
  text += hex(token) + ":" + hex(address) + ":" + hex(bytes);
  for (const uint32_t rkey : rkeys) text += ":" + hex(rkey);
  return text;
}

RdmaKey RdmaKey::parse(std::string_view text) {
  RdmaKey key;
  HexReader reader(text);
  const auto field = [&](uint64_t& value) {
    const std::optional<uint64_t> read = reader.number(UINT64_MAX);
    value = read.value_or(0);
    return read.has_value();
  };
  bool good = text.size() <= kLongestKey && reader.takes(kKeyPrefix) && field(key.token) &&
              reader.takes(":") && field(key.address) && reader.takes(":") && field(key.bytes) &&
              (Checked(key.address) + key.bytes).isAtMost(UINT64_MAX);
  while (good && !reader.isAtEnd()) {
    const std::optional<uint64_t> rkey =
        reader.takes(":") ? reader.number(UINT32_MAX) : std::nullopt;
    good = rkey && key.rkeys.size() < RdmaDevices::kMost;
    if (good) key.rkeys.push_back(static_cast<uint32_t>(*rkey));
  }
  if (!good || key.rkeys.empty()) {
    throw Error(ErrorKind::InvalidArgument,
                "this is no key of RDMA memory: \"" + printable(text.substr(0, 40)) + "\"", {}, {},
                "take it from RdmaMemory.remoteKey() or to_remote_buffer() of the peer");
  }
  return key;
}

std::shared_ptr<RdmaRegistration> RdmaRegistration::of(void* address, size_t bytes, int gpu,
                                                       RdmaOwner owner) {
  if (!address || bytes == 0 || !(Checked(numberOf(address)) + bytes).isAtMost(UINT64_MAX)) {
    throw Error(ErrorKind::InvalidArgument,
                "RDMA memory has an address and at least one byte, not " + std::to_string(bytes) +
                    " bytes at 0x" + hex(numberOf(address)));
  }
  std::shared_ptr<RdmaRegistration> made(
      new RdmaRegistration(address, bytes, gpu, std::move(owner)));
  made->registerAtAll();
  return made;
}

void RdmaRegistration::registerAtAll() {
  devices_ = RdmaDevices::get();
  key_ = {devices_->token(), numberOf(address_), bytes_, {}};
  for (size_t i = 0; i < devices_->size(); ++i) {
    const IbDevice& device = (*devices_)[i];
    const unsigned access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    Expected<IbvMr> region = gpu_ >= 0
                                 ? registerGpuMemory(device.pd(), gpu_, address_, bytes_, access)
                                 : device.pd().regMr(address_, bytes_, access);
    if (!region) {
      throw Error(ErrorKind::System, std::to_string(bytes_) + " bytes at 0x" +
                                         hex(numberOf(address_)) +
                                         " cannot be registered at RDMA device " + device.name() +
                                         ": " + region.error().errStr);
    }
    regions_.push_back(*std::move(region));
    key_.rkeys.push_back(regions_.back().rkey());
  }
}

std::shared_ptr<RdmaRegistration> RdmaRegistration::findOrMake(void* address, size_t bytes, int gpu,
                                                               RdmaOwner owner, bool& found) {
  const std::shared_ptr<RdmaDevices> devices = RdmaDevices::get();
  Held& list = held();
  {
    const std::lock_guard lock(list.mutex);
    std::erase_if(list.all, [](const auto& each) { return each.expired(); });
    for (const auto& each : list.all) {
      std::shared_ptr<RdmaRegistration> there = each.lock();
      found = there && there->isKept() && there->gpu_ == gpu && there->devices_ == devices &&
              there->contains(address, bytes);
      if (found) return there;
    }
  }
  found = false;
  std::shared_ptr<RdmaRegistration> made = of(address, bytes, gpu, std::move(owner));
  const std::lock_guard lock(list.mutex);
  list.all.push_back(made);
  return made;
}

bool RdmaRegistration::contains(const void* address, size_t bytes) const {
  return isWithin(address, bytes, address_, bytes_);
}

void RdmaRegistration::use() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void RdmaRegistration::release() {
  const std::lock_guard lock(mutex_);
  if (--users_ == 0) unused_.notify_all();
}

void RdmaRegistration::waitUntilUnused() {
  if (!devices_->areOurs()) return;  // the transfers are those of the process that forked
  std::unique_lock lock(mutex_);
  unused_.wait(lock, [this] { return users_ == 0; });
}

RdmaExtent::RdmaExtent(void* address, size_t bytes, int gpu, RdmaOwner owner, bool reuses)
    : address_(address),
      bytes_(bytes),
      owner_(std::move(owner)),
      registration_(reuses ? RdmaRegistration::findOrMake(address, bytes, gpu, owner_, reused_)
                           : RdmaRegistration::of(address, bytes, gpu, owner_)) {}

bool RdmaExtent::contains(const void* address, size_t bytes) const {
  return isWithin(address, bytes, address_, bytes_);
}

const RdmaKey& RdmaExtent::key() {
  const bool isWhole = registration_->address() == address_ && registration_->bytes() == bytes_;
  if (isWhole) return registration_->key();
  const std::lock_guard lock(mutex_);
  if (!exposed_) {
    if (!owner_.isKeeping()) {
      throw Error(ErrorKind::InvalidArgument,
                  "this RDMA memory is not what was registered any more");
    }
    exposed_ = RdmaRegistration::of(address_, bytes_, registration_->gpu(), owner_);
  }
  return exposed_->key();
}

RdmaSpan spanOf(const std::shared_ptr<RdmaRegistration>& registration, void* data, size_t bytes) {
  requireWithin(data, bytes, registration->address(), registration->bytes());
  return {registration, data, bytes};
}

RdmaSpan spanOf(const RdmaExtent& extent, void* data, size_t bytes) {
  requireWithin(data, bytes, extent.address(), extent.bytes());
  return {extent.registration(), data, bytes};
}

}  // namespace ctran
