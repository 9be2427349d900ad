#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "ctran/verbs/abi.h"
#include "tests/standins/verbs/network.h"

/// What the stand-in for libibverbs.so.1 does with work requests: it moves data between the threads
/// of one process, and with network.h between processes. See control.h for the order in which it
/// does so.
namespace stand_in {

using namespace ibverbx;

constexpr int kMaxWr = 4096;
constexpr int kMaxSge = 4;
constexpr int kMaxCqe = 1 << 16;
constexpr uint32_t kMaxMessage = 1u << 30;
constexpr size_t kMaxInline = 128;
/// The other queue pair has no receive posted, and the sender waits for one.
constexpr auto kNotReady = static_cast<ibv_wc_status>(1000);

inline bool isAtomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

struct Device : ibv_device {
  ibv_gid gid = {};
  bool linkUp = true;
  bool removed = false;
};

struct Context : ibv_context {
  std::deque<ibv_async_event> events;
  int eventWriter = -1;
  Device& ours() const { return *static_cast<Device*>(device); }
};

struct Pd : ibv_pd {};

struct Mr : ibv_mr {
  unsigned access = 0;
  uint64_t iova = 0;
  bool mapped = false;
};

struct Qp;

struct Cq : ibv_cq {
  struct Entry {
    ibv_wc wc;
    std::weak_ptr<uint64_t> retired;  ///< the counter of its queue, which frees slots when polled
    uint64_t upTo;
  };
  std::deque<Entry> entries;
  bool armed = false;
  bool overrun = false;
};

/// A posted request: its lists are copied, as a device reads them when they are posted.
struct Send {
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  std::string inlined;
  uint64_t index;
};
struct Recv {
  ibv_recv_wr wr;
  ibv_sge sges[kMaxSge];
  uint64_t index;
};

struct Qp : ibv_qp {
  ibv_qp_cap cap = {};
  ibv_qp_attr attributes = {};
  bool signalAll = false;
  std::deque<Send> sends;
  std::deque<Recv> recvs;
  uint64_t sendsPosted = 0, recvsPosted = 0;
  std::shared_ptr<uint64_t> sendsRetired = std::make_shared<uint64_t>(0);
  std::shared_ptr<uint64_t> recvsRetired = std::make_shared<uint64_t>(0);
  /// Completions on their way into their queues.
  std::deque<Cq::Entry> sendDone, recvDone;
  int rnrRetries = 0;
  uint64_t asked = 0;  ///< the request to another process that the first send has become
  uint64_t underWayAtFailure = 0;  ///< sends posted before it failed
};

struct Fault {
  enum What { kFail, kUnplug, kRemove };
  uint32_t qpNum;
  uint64_t after;
  ibv_wc_status status;
  What what = kFail;   ///< the others befall the device
  uint64_t every = 0;  ///< it comes again after so many
};

/// Everything there is, behind one lock.
struct Wire {
  std::mutex mutex;
  uint64_t seed = 0;
  std::mt19937_64 random;
  uint64_t executed = 0;
  std::atomic<int> objects{0};  ///< read without the lock, which a forked child may never get
  bool forksSafe = false, hasRegistered = false;
  uint32_t nextKey = 0x1000;
  uint32_t nextQpNum = 0x11;  ///< of those of this process
  uint64_t nextRequest = 1;
  std::vector<std::unique_ptr<Device>> devices;
  bool filled = false;             ///< the list of devices
  std::map<uint32_t, Mr*> memory;  ///< by lkey, which is the rkey too
  std::map<uint32_t, Qp*> qps;
  std::vector<Qp*> order;  ///< those of `qps`, to choose from
  std::vector<Context*> contexts;
  std::vector<Fault> faults;
  Network& network = *new Network(*this);

  static Wire& get();

  /// Does what can be done now: everything with seed 0, else some steps.
  void advance();
  /// Flushes a queue pair, which goes to ERR.
  void fail(Qp& qp);
  void raise(ibv_context* context, const ibv_async_event& event);
  void plug(Device& device, bool up);
  void remove(Device& device);
  void overrun(Cq& cq);
  uint32_t freeQpNum();

  // For the network: what another process asks of this one, or has answered; that it is gone.
  ibv_wc_status serve(const Request& request, std::string& payload);
  void answered(const Request& reply, const std::string& payload);
  void unreachable(uint32_t slot);

 private:
  bool step(Qp& qp, unsigned what);
  bool execute(Qp& qp);
  bool flush(Qp& qp);
  ibv_wc_status move(Qp& qp, Qp& peer, Send& send);
  ibv_wc_status gather(Qp& qp, const Send& send, std::string& payload);
  ibv_wc_status access(Qp& peer, const Request& request, std::string& payload);
  bool ask(Qp& qp, Send& send, ibv_wc_status& status);
  void finish(Qp& qp, ibv_wc_status status);
  Qp* peerOf(const Qp& qp);
  void complete(Qp& qp, const Send& send, ibv_wc_status status, uint32_t bytes);
  void complete(Qp& qp, const Recv& recv, ibv_wc_status status, ibv_wc wc);
  void deliver(std::deque<Cq::Entry>& from, Cq& to);
  Mr* find(uint32_t key, uint64_t address, uint64_t bytes, const ibv_pd* pd, unsigned access);
};

}  // namespace stand_in
