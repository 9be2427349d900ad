#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "ctran/verbs/virtual_qp.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ibverbx {

/// One end: a device, a virtual completion queue for each direction, and a virtual queue pair.
struct End {
  End(int device, const IbvVirtualQpConfig& config, int cqs, int entries = 1024);

  std::vector<IbvCq> queues(int count, int entries) const;
  std::unique_ptr<IbvVirtualQp> make(const IbvVirtualQpConfig& config);
  IbvRtrOptions pathTo(const ibv_gid& remoteGid) const;
  static void join(End& a, IbvVirtualQp& qpOfA, End& b, IbvVirtualQp& qpOfB);

  IbvContext context;
  IbvPd pd;
  IbvVirtualCq sendCq, recvCq;
  ibv_gid_entry gid;
  std::unique_ptr<IbvVirtualQp> qp;
};

/// Where schedules run.
struct Fabric {
  int deviceOfA = 0, deviceOfB = 1;
  const StandInVerbs* standIn = nullptr;  ///< null: a kernel's devices, whose order nobody chooses
  uint32_t scale = 1;                     ///< of messages and fragments
  /// What is not left to the seed.
  std::function<void(IbvVirtualQpConfig&)> adjust;
};

/// Random writes from A to B, and reads of B's memory, over virtual queue pairs, posted, received
/// and polled in a random order; checks every completion and every byte.
///
/// On the stand-in a seed is one schedule. A faulty one has a work request that fails: there a
/// random one, on a kernel's device one with a wrong key.
class Schedule {
 public:
  Schedule(const Fabric& fabric, uint64_t seed, bool faulty);
  /// A number for what happened, in its order.
  uint64_t run();
  bool failed() const { return a_->qp->failed(); }

 private:
  struct Plan {
    size_t offset;
    uint32_t length;
    bool notify, signaled, reads;
  };

  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  void trace(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001b3; }
  bool done() const;
  bool quiet() const;
  size_t nextSignaled(size_t index) const;
  bool placed(const Plan& plan) const;
  /// Where it is to, and where from.
  const std::vector<uint8_t>& target(const Plan& plan) const { return plan.reads ? got_ : to_; }
  const std::vector<uint8_t>& source(const Plan& plan) const { return plan.reads ? there_ : from_; }
  struct Keys;
  void step(const Keys& keys);
  void post(const Keys& keys);
  void receive();
  void pollSender();
  void pollReceiver();
  void checkEnd();

  std::mt19937_64 random_;
  const Fabric& fabric_;
  IbvVirtualQpConfig config_;
  struct Keys {
    uint32_t from, to, got, there;
  };
  std::vector<uint8_t> from_, to_, got_, there_;  // A's, B's; what A reads, B's
  std::vector<Plan> plans_;
  std::vector<std::pair<size_t, std::vector<uint8_t>>> atCompletion_;
  size_t notices_ = 0, posted_ = 0, received_ = 0, sent_ = 0, notified_ = 0, noticeAt_ = 0;
  size_t wrongKeyAt_ = SIZE_MAX;
  bool refused_ = false, failedSend_ = false;
  uint64_t trace_ = 0xcbf29ce484222325;
  std::optional<End> a_, b_;
};

}  // namespace ibverbx
