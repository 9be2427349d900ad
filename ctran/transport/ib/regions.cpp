#include "ctran/transport/ib/regions.h"

#include "ctran/base/checked.h"
#include "ctran/base/log.h"

namespace ctran {

using namespace ibverbx;

bool IbRegion::contains(const void* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uint64_t>(memory_.data());
  const auto wanted = reinterpret_cast<uint64_t>(data);
  return wanted >= begin && isInside(wanted - begin, bytes, memory_.size());
}

bool IbRegion::registerAt(const IbDevice& device) {
  const std::lock_guard lock(mutex_);
  if (at_.contains(&device)) return true;
  if (hasFailed_) return false;
  Expected<IbvMr> region = device.pd().regMr(memory_.data(), memory_.size(), access_);
  if (!region) {
    hasFailed_ = true;
    log(LogComponent::Transport, LogLevel::Warn,
        "messages are copied: %zu bytes of memory cannot be registered at RDMA device %s: %s",
        memory_.size(), device.name().c_str(), region.error().errStr.c_str());
    return false;
  }
  at_.emplace(&device, *std::move(region));
  return true;
}

uint32_t IbRegion::lkey(const IbDevice& device) const {
  const std::lock_guard lock(mutex_);
  return at_.at(&device).lkey();
}

uint32_t IbRegion::rkey(const IbDevice& device) const {
  const std::lock_guard lock(mutex_);
  return at_.at(&device).rkey();
}

void IbRegion::clearAt(const IbDevice& device) {
  const std::lock_guard lock(mutex_);
  at_.erase(&device);
}

void IbRegion::clear() {
  const std::lock_guard lock(mutex_);
  at_.clear();
  hasFailed_ = true;
}

std::shared_ptr<IbRegion> NamedRegions::add(std::span<std::byte> memory,
                                            std::function<bool()> isCurrent) {
  auto region = std::make_shared<IbRegion>(memory, std::move(isCurrent));
  const std::lock_guard lock(mutex_);
  std::erase_if(regions_, [](const auto& each) { return each.expired(); });
  regions_.push_back(region);
  return region;
}

std::shared_ptr<IbRegion> NamedRegions::find(const void* data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& each : regions_) {
    auto region = each.lock();
    if (region && region->contains(data, bytes) && region->isCurrent()) return region;
  }
  return nullptr;
}

void NamedRegions::clearAt(const IbDevice& device) {
  const std::lock_guard lock(mutex_);
  for (const auto& each : regions_) {
    if (const auto region = each.lock()) region->clearAt(device);
  }
}

IbRegions::~IbRegions() {
  for (auto& [allocation, each] : allocated_) each.region->clear();
}

std::shared_ptr<IbRegion> IbRegions::find(const void* data, size_t bytes) {
  auto found = named_->find(data, bytes);
  return found ? found : allocated(data, bytes);
}

std::shared_ptr<IbRegion> IbRegions::allocated(const void* data, size_t bytes) {
  const std::shared_ptr<SharedAllocation> allocation = SharedAllocation::find(data, bytes);
  if (!allocation) return nullptr;
  if (const auto known = allocated_.find(allocation.get()); known != allocated_.end()) {
    if (known->second.allocation.lock() == allocation) return known->second.region;
  }
  // Of those that have gone the keys go, too: another one may have their addresses by now.
  std::erase_if(allocated_, [](const auto& each) { return each.second.allocation.expired(); });
  std::weak_ptr<SharedAllocation> weak = allocation;
  auto region = std::make_shared<IbRegion>(std::span(allocation->data(), allocation->size()),
                                           [weak] { return !weak.expired(); });
  allocated_[allocation.get()] = {weak, region};
  return region;
}

}  // namespace ctran
