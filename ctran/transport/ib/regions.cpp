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

void IbRegion::clear() {
  const std::lock_guard lock(mutex_);
  at_.clear();
  hasFailed_ = true;
}

IbRegions::~IbRegions() {
  for (const auto& each : named_) {
    if (const std::shared_ptr<IbRegion> region = each.lock()) region->clear();
  }
  for (auto& [allocation, each] : allocated_) each.region->clear();
}

std::shared_ptr<IbRegion> IbRegions::add(std::span<std::byte> memory,
                                         std::function<bool()> isCurrent) {
  auto region = std::make_shared<IbRegion>(memory, std::move(isCurrent));
  std::erase_if(named_, [](const auto& each) { return each.expired(); });
  named_.push_back(region);
  return region;
}

std::shared_ptr<IbRegion> IbRegions::find(const void* data, size_t bytes) {
  std::shared_ptr<IbRegion> found;
  for (const auto& each : named_) {
    found = each.lock();
    if (found && found->contains(data, bytes) && found->isCurrent()) break;
    found.reset();
  }
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
