#include "ctran/rdma/devices.h"

#include <algorithm>
#include <mutex>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/os/process.h"

namespace ctran {

using namespace ibverbx;

namespace {

uint64_t randomToken() {
  uint64_t token = 0;
  fillRandom(reinterpret_cast<std::byte*>(&token), sizeof token);
  return token;
}

}  // namespace

std::shared_ptr<RdmaDevices> RdmaDevices::get() {
  static std::mutex mutex;
  static std::weak_ptr<RdmaDevices> open;
  const std::lock_guard lock(mutex);
  std::shared_ptr<RdmaDevices> devices = open.lock();
  bool works = devices && devices->areOurs();
  for (size_t i = 0; works && i < devices->size(); ++i) works = !devices->isGone(i);
  if (works) return devices;

  IbSettings settings = IbSettings::fromEnvironment();
  settings.enabled = true;  // CTRAN_IB is about ranks: who makes a transport has asked for RDMA
  std::string why;
  std::vector<std::unique_ptr<IbDevice>> found = IbDevice::openAll(settings, 1, why);
  if (found.empty()) {
    throw Error(ErrorKind::Unsupported, "RDMA cannot be used: " + why, {}, {},
                "`torchcomms doctor` lists the devices; CTRAN_IB_HCA chooses among them");
  }
  if (found.size() > kMost) found.resize(kMost);
  devices.reset(new RdmaDevices(std::move(found)));
  open = devices;
  return devices;
}

RdmaDevices::RdmaDevices(std::vector<std::unique_ptr<IbDevice>> devices)
    : devices_(std::move(devices)), token_(randomToken()), process_(processToken()) {}

bool RdmaDevices::areOurs() const { return process_ == processToken(); }

void RdmaDevices::pollEvents() {
  const std::lock_guard lock(events_);  // to read one where there is none waits
  for (size_t i = 0; i < size(); ++i) {
    for (;;) {
      const Expected<std::optional<IbvAsyncEvent>> event = devices_[i]->context().pollAsyncEvent();
      if (!event || !*event) break;
      log(LogComponent::Transport, LogLevel::Info, "RDMA device %s: %s",
          devices_[i]->name().c_str(), (*event)->text.c_str());
      take(i, **event);
    }
  }
}

void RdmaDevices::watch(const std::shared_ptr<RdmaWatch>& watch) {
  const std::lock_guard lock(events_);
  std::erase_if(watches_, [](const auto& each) { return each.expired(); });
  watches_.push_back(watch);
}

void RdmaDevices::take(size_t device, const IbvAsyncEvent& event) {
  const auto failThose = [&](const std::string& why, const auto& concerns) {
    for (const auto& each : watches_) {
      const std::shared_ptr<RdmaWatch> watch = each.lock();
      if (!watch || watch->device != device || watch->hasFailed || !concerns(*watch)) continue;
      watch->why = why;
      watch->hasFailed.store(true, std::memory_order_release);
    }
  };
  const auto hasQp = [&](const RdmaWatch& watch) {
    return std::find(watch.qpNums.begin(), watch.qpNums.end(), event.qpNum) != watch.qpNums.end();
  };
  switch (event.type) {
    case IBV_EVENT_DEVICE_FATAL:
      return gone_[device].store(true, std::memory_order_release);
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
      if (event.port != devices_[device]->port()) return;
      return down_[device].store(event.type == IBV_EVENT_PORT_ERR, std::memory_order_release);
    case IBV_EVENT_CQ_ERR:
      return failThose("its completion queue has failed (" + event.text + ")",
                       [&](const RdmaWatch& watch) { return watch.cq == event.cq; });
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_REQ_ERR:
      return failThose("the peer has asked for what it cannot reach (" + event.text + ")", hasQp);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_PATH_MIG_ERR:
      return failThose("its queue pair has failed (" + event.text + ")", hasQp);
    default:
      return;
  }
}

}  // namespace ctran
