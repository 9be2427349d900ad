#include "ctran/transport/ib/device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ctran/base/log.h"
#include "ctran/transport/ib/link.h"

namespace ctran {

using namespace ibverbx;

namespace {

/// Completions of all that a link may have under way, in both directions.
int64_t entriesOfLink(const IbSettings& settings) {
  return int64_t{2} * IbLink::kFragmentsPerQp * settings.numQps;
}

}  // namespace

int chooseGid(const std::vector<ibv_gid_entry>& table, bool isEthernet) {
  const auto isIpv4 = [](const ibv_gid& gid) {
    return gid.global.subnet_prefix == 0 && gid.raw[8] == 0 && gid.raw[9] == 0 &&
           gid.raw[10] == 0xff && gid.raw[11] == 0xff;
  };
  const auto worth = [&](const ibv_gid_entry& entry) {
    if (!isEthernet) return 1;  // the first is the port's own
    const bool isLinkLocal = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
    const int reach = isIpv4(entry.gid) ? 3 : isLinkLocal ? 1 : 2;
    // Before rdma-core 33 nobody tells the type: version 2 is the higher index of two alike.
    return reach + (entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? 20
                    : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? 0
                                                             : 10);
  };
  int best = -1, bestWorth = 0;
  for (const ibv_gid_entry& entry : table) {
    const int value = worth(entry);
    if (value > bestWorth) {
      bestWorth = value;
      best = static_cast<int>(entry.gid_index);
    }
  }
  return best;
}

std::vector<std::unique_ptr<IbDevice>> IbDevice::openAll(const IbSettings& settings, int peers,
                                                         std::string& why) {
  std::vector<std::unique_ptr<IbDevice>> found;
  if (!settings.enabled) {
    why = "CTRAN_IB is off";
    return found;
  }
  const auto devices = IbvDevice::ibvGetDeviceList();
  if (!devices) {
    why = devices.error().errStr;
    return found;
  }
  why = devices->empty() ? "this machine has no RDMA device"
                         : "no active port of an RDMA device that CTRAN_IB_HCA allows";
  const HcaFilter filter(settings.hca);
  const int node = settings.sysfs.empty() ? commonNode(thisHost(), allowedCpus())
                                          : commonNode(Host::read(settings.sysfs), allowedCpus());
  for (const IbvDevice& device : *devices) {
    uint8_t ports = 1;
    for (uint8_t port = 1; port <= ports; ++port) {
      if (!filter.allows(device.name(), port)) continue;
      auto opened = open(device, port, settings, peers);
      if (!opened) {
        why = opened.error().errStr;
        log(LogComponent::Transport, LogLevel::Info, "RDMA device %s, port %d, is not used: %s",
            device.name(), port, why.c_str());
        continue;
      }
      ports = (*opened)->context_.attributes().phys_port_cnt;
      (*opened)->place_ = PciPlace::of(settings.sysfs + device.sysfsPath() + "/device");
      if (settings.hca.empty()) (*opened)->distance_ = (*opened)->place_.distance(node);
      const auto isNearer = [](const auto& a, const auto& b) {
        return a->distance_ < b->distance_;
      };
      const auto behindEquals = std::upper_bound(found.begin(), found.end(), *opened, isNearer);
      found.insert(behindEquals, *std::move(opened));
    }
  }
  return found;
}

size_t countNearest(const std::vector<std::unique_ptr<IbDevice>>& devices) {
  return static_cast<size_t>(std::count_if(devices.begin(), devices.end(), [&](const auto& device) {
    return device->distance() == devices.front()->distance();
  }));
}

Expected<std::unique_ptr<IbDevice>> IbDevice::open(const IbvDevice& device, uint8_t port,
                                                   const IbSettings& settings, int peers) {
  Expected<IbvContext> context = device.open();
  if (!context) return context.error();
  const Expected<ibv_port_attr> attributes = context->queryPort(port);
  if (!attributes) return attributes.error();
  if (attributes->state != IBV_PORT_ACTIVE) {
    return ibverbx::Error{ENETDOWN, "the port is not active"};
  }
  Expected<IbvPd> pd = context->allocPd();
  if (!pd) return pd.error();
  Expected<IbvCompChannel> channel = context->createCompChannel();
  if (!channel) return channel.error();

  // A pair may have two links at a device: one that has failed elsewhere is made again here.
  const int64_t wanted = 2 * entriesOfLink(settings) * peers;
  const int entries =
      static_cast<int>(std::min<int64_t>(wanted, context->attributes().max_cqe - 1));
  std::unique_ptr<IbDevice> made(
      new IbDevice(settings, *std::move(context), *std::move(pd), *std::move(channel), port));
  Expected<IbvCq> cq = made->context_.createCq(entries, 0, &made->channel_);
  if (!cq) return cq.error();
  std::vector<IbvCq> cqs;
  cqs.push_back(*std::move(cq));
  made->cq_ = std::make_unique<IbvVirtualCq>(std::move(cqs));
  made->entries_ = entries;
  made->attributes_ = *attributes;

  std::vector<ibv_gid_entry> table;
  for (int i = 0; i < attributes->gid_tbl_len; ++i) {
    if (const auto entry = made->context_.queryGid(port, i)) table.push_back(*entry);
  }
  const bool isEthernet = attributes->link_layer == IBV_LINK_LAYER_ETHERNET;
  const int index = settings.gidIndex >= 0 ? settings.gidIndex : chooseGid(table, isEthernet);
  for (const ibv_gid_entry& entry : table) {
    if (static_cast<int>(entry.gid_index) == index) {
      made->gid_ = entry;
      return made;
    }
  }
  return ibverbx::Error{
      ENODATA,
      settings.gidIndex >= 0
          ? "the port has no GID " + std::to_string(index) + ", which CTRAN_IB_GID_INDEX asks for"
          : std::string("the port has no GID; does its interface have an "
                        "address?")};
}

bool IbDevice::hasRoomForLink() const {
  return static_cast<int64_t>(links_.size() + 1) * entriesOfLink(settings_) <= entries_;
}

void IbDevice::pollEvents() {
  for (;;) {
    const Expected<std::optional<IbvAsyncEvent>> event = context_.pollAsyncEvent();
    if (!event || !*event) return;
    log(LogComponent::Transport, LogLevel::Info, "RDMA device %s: %s", name().c_str(),
        (*event)->text.c_str());
    take(**event);
  }
}

void IbDevice::take(const IbvAsyncEvent& event) {
  const auto breakLinks = [&](const auto& concerns) {
    for (const auto& [qpNum, link] : links_) {
      if (concerns(*link)) link->broken(event.text);
    }
  };
  const auto all = [](const IbLink&) { return true; };
  switch (event.type) {
    case IBV_EVENT_DEVICE_FATAL:
      isGone_ = true;
      return breakLinks(all);
    case IBV_EVENT_PORT_ERR:
      if (event.port != port_) return;
      isPortUp_ = false;
      // Where there is no other way the port has until the retries are used up.
      if (settings_.failsOver) breakLinks(all);
      return;
    case IBV_EVENT_PORT_ACTIVE:
      isPortUp_ |= event.port == port_;
      return;
    case IBV_EVENT_CQ_ERR:  // of the only one: nothing is heard of this device any more
      isGone_ = true;
      return breakLinks(all);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      return breakLinks([&](const IbLink& link) { return link.has(event.qpNum); });
    default:
      return;
  }
}

bool IbDevice::poll() {
  if (isGone_) return false;
  std::array<ibv_wc, 32> completions;
  bool any = false;
  for (;;) {
    const Expected<int> count = cq_->pollCq(completions);
    if (!count) {
      for (const auto& [qpNum, link] : links_) link->broken(count.error().errStr);
      return any;
    }
    for (int i = 0; i < *count; ++i) {
      const auto link = links_.find(completions[i].qp_num);
      if (link != links_.end()) link->second->completed(completions[i]);
    }
    any |= *count > 0;
    if (*count < static_cast<int>(completions.size())) return any;
  }
}

void IbDevice::arm() {
  if (std::exchange(armed_, true)) return;
  if (const Maybe done = cq_->requestNotify(); !done) {
    log(LogComponent::Transport, LogLevel::Warn, "RDMA device %s: %s", name().c_str(),
        done.error().errStr.c_str());
  }
}

void IbDevice::disarm() {
  if (channel_.drain() > 0) armed_ = false;
}

}  // namespace ctran
