#include "ctran/rdma/devices.h"

#include <unistd.h>

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
    : devices_(std::move(devices)), token_(randomToken()), process_(::getpid()) {}

bool RdmaDevices::areOurs() const { return process_ == ::getpid(); }

void RdmaDevices::pollEvents() {
  const std::lock_guard lock(events_);  // to read one where there is none waits
  for (size_t i = 0; i < size(); ++i) {
    for (;;) {
      const Expected<std::optional<IbvAsyncEvent>> event = devices_[i]->context().pollAsyncEvent();
      if (!event || !*event) break;
      log(LogComponent::Transport, LogLevel::Info, "RDMA device %s: %s",
          devices_[i]->name().c_str(), (*event)->text.c_str());
      if ((*event)->type == IBV_EVENT_DEVICE_FATAL) {
        gone_[i].store(true, std::memory_order_release);
      }
    }
  }
}

}  // namespace ctran
