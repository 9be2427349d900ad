#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ctran/rdma/rail.h"
#include "ctran/rdma/transport.h"

namespace ctran {

/// The state of an RdmaTransport, which its loop shares.
///
/// Transfers are kept in the order of the calls, and posted in it. Notices all go over the first
/// device; one that follows data on others is a message of its own, and is posted when all data
/// before it are known to be in place.
class RdmaTransport::Connection : public RdmaLoop::Driven,
                                  public RdmaProgress,
                                  public std::enable_shared_from_this<RdmaTransport::Connection> {
 public:
  Connection(std::shared_ptr<RdmaLoop> loop, const RdmaOptions& options);

  std::string bind() const { return url_; }
  void connect(std::string_view url);
  bool connected();
  RdmaFuture transfer(ibverbx::ibv_wr_opcode opcode, const RdmaSpan& span, const RdmaRemote& remote,
                      bool notify);
  RdmaFuture waitForWrite();
  void close();

  int service() override;
  void beginPolling() override { ++pollers_; }
  void endPolling(bool sleeps) override;
  void beginSleeping() override;
  void endSleeping() override { --sleepers_; }
  void progress() override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { Bound, Connected, Failed };
  struct Operation {
    RdmaFuture future;
    RdmaSpan span;
    uint64_t remote;
    std::array<uint32_t, RdmaCard::kMostRails> rkeys;  // of each rail
    ibverbx::ibv_wr_opcode opcode;
    bool notify;
    size_t posted = 0;       // bytes
    uint32_t underWay = 0;   // messages
    uint32_t elsewhere = 0;  // of those, messages of other devices than the first
    bool isPosted = false, isNoticed = false, isDone = false, hasFailed = false;
  };
  /// What has ended, and is told when nothing is locked.
  struct End {
    RdmaFuture future;
    RdmaOutcome outcome;
    std::shared_ptr<RdmaRegistration> memory;  // let go of when nothing is locked, too
  };
  using Ended = std::vector<End>;

  void requireOurs() const;
  void requireUsable() const;
  const RdmaKey& keyOf(const std::string& text);
  Operation operationOf(ibverbx::ibv_wr_opcode opcode, const RdmaSpan& span,
                        const RdmaRemote& remote, bool notify);
  Operation& operation(uint64_t id) { return operations_[id - firstId_]; }
  uint64_t endId() const { return firstId_ + operations_.size(); }

  void pollRails(Ended& ended);
  void armRails();
  int whenNext() const;
  void pump();
  bool postParts(uint64_t id);
  bool postNotices();
  void completed(RdmaRail& rail, const ibverbx::ibv_wc& wc, Ended& ended);
  void noticed(Ended& ended);
  static void end(Operation& operation, RdmaOutcome outcome, Ended& ended);
  static void finishIfDone(Operation& operation, Ended& ended);
  std::optional<Error> troubleOf(const RdmaRail& rail) const;
  void watchOver();
  void probe();
  void fail(Error error, bool isCause = true);
  void failed(const RdmaRail& rail, ibverbx::ibv_wc_status status);
  void tearDownIfFailed(Ended& ended);
  void tearDown(Ended& ended);
  static void tell(Ended& ended);

  const std::shared_ptr<RdmaLoop> loop_;
  const std::shared_ptr<RdmaDevices> devices_;
  const std::chrono::nanoseconds timeout_;
  std::string url_;

  std::mutex mutex_;
  State state_ = State::Bound;
  std::vector<std::unique_ptr<RdmaRail>> rails_;
  RdmaCard peer_;
  std::string lastKeyText_;  // of the last transfer, and what it says
  RdmaKey lastKey_;
  std::deque<Operation> operations_;
  uint64_t firstId_ = 0;  // of operations_
  uint64_t nextId_ = 0;   // the first that is not posted whole
  uint64_t fenced_ = 0;   // operations posted, with data on other devices, or whose notice misses
  size_t turn_ = 0;
  std::deque<RdmaFuture> waits_;
  uint64_t notices_ = 0;  // for which nobody has waited yet
  uint32_t probes_ = 0;   // under way
  int next_ = -1;         // what service() has said last
  bool heard_ = false;    // of the peer, since it was connected
  std::atomic<int> pollers_{0}, sleepers_{0};
  std::atomic<Clock::time_point> polledAt_{};  // when a thread has ended polling, or none
  Clock::time_point connectedAt_, movedAt_, failedAt_;
  RdmaOutcome why_;       // of Failed
  bool isCause_ = false;  // why_ says more than that the connection has ended
};

}  // namespace ctran
