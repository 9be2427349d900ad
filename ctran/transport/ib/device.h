#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ctran/topology/pci.h"
#include "ctran/transport/ib/settings.h"
#include "ctran/verbs/virtual_qp.h"

namespace ctran {

class IbLink;

/// RDMA reads that a queue pair has on the way at most.
inline constexpr int kMostReads = 16;

/// An address as work requests and peers have it.
inline uint64_t numberOf(const void* address) { return reinterpret_cast<uint64_t>(address); }

/// A port of an RDMA device, open, with what the links over it share. One thread at a time uses it
/// and them.
class IbDevice {
 public:
  /// The active ports that the settings allow, opened; the nearest to this thread's cores first.
  /// Empty if there are none, or no RDMA at all: `why` then says the reason.
  static std::vector<std::unique_ptr<IbDevice>> openAll(const IbSettings& settings, int peers,
                                                        std::string& why);

  std::string name() const { return std::string(context_.name()) + ":" + std::to_string(port_); }
  const IbSettings& settings() const { return settings_; }
  /// From the cores of the thread that has opened it, see PciPlace; 0 where the settings name
  /// devices.
  int distance() const { return distance_; }
  const PciPlace& place() const { return place_; }
  const ibverbx::IbvContext& context() const { return context_; }
  const ibverbx::IbvPd& pd() const { return pd_; }
  ibverbx::IbvVirtualCq& cq() { return *cq_; }
  uint8_t port() const { return port_; }
  const ibverbx::ibv_port_attr& portAttributes() const { return attributes_; }
  const ibverbx::ibv_gid_entry& gid() const { return gid_; }

  /// Hands completions to their links; whether there were any.
  bool poll();
  /// Readable, once it is armed, when there may be something to poll.
  int fd() const { return channel_.fd(); }
  /// Arms it, if it is not; to be followed by a poll.
  void arm();
  bool isArmed() const { return armed_; }
  /// Takes what made `fd` readable.
  void disarm();

  /// Readable when there may be something for pollEvents.
  int eventFd() const { return context_.asyncFd(); }
  /// Takes note of what has happened to the device, and tells the links that it concerns.
  void pollEvents();
  /// Whether the device is there, with its completion queue, and its port active, as far as events
  /// have told.
  bool isUsable() const { return !isGone_ && isPortUp_; }

  /// Whether its completion queue can take all that another link may have under way.
  bool hasRoomForLink() const;
  void add(uint32_t qpNum, IbLink& link) { links_[qpNum] = &link; }
  void drop(uint32_t qpNum) { links_.erase(qpNum); }

 private:
  void take(const ibverbx::IbvAsyncEvent& event);
  IbDevice(const IbSettings& settings, ibverbx::IbvContext context, ibverbx::IbvPd pd,
           ibverbx::IbvCompChannel channel, uint8_t port)
      : settings_(settings),
        context_(std::move(context)),
        pd_(std::move(pd)),
        channel_(std::move(channel)),
        port_(port) {}
  static ibverbx::Expected<std::unique_ptr<IbDevice>> open(const ibverbx::IbvDevice& device,
                                                           uint8_t port, const IbSettings& settings,
                                                           int peers);

  const IbSettings settings_;
  ibverbx::IbvContext context_;
  ibverbx::IbvPd pd_;
  ibverbx::IbvCompChannel channel_;
  std::unique_ptr<ibverbx::IbvVirtualCq> cq_;
  const uint8_t port_;
  ibverbx::ibv_port_attr attributes_{};
  ibverbx::ibv_gid_entry gid_{};
  int entries_ = 0;  // of the completion queue
  int distance_ = 0;
  PciPlace place_;
  bool armed_ = false;
  bool isGone_ = false;
  bool isPortUp_ = true;
  std::unordered_map<uint32_t, IbLink*> links_;
};

/// How many of those devices, which openAll() has given, are as near as the first.
size_t countNearest(const std::vector<std::unique_ptr<IbDevice>>& devices);

/// The best GID of a table for packets between hosts: -1 if none is of use. See CTRAN_IB_GID_INDEX.
int chooseGid(const std::vector<ibverbx::ibv_gid_entry>& table, bool isEthernet);

}  // namespace ctran
