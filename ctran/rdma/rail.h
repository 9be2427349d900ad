#pragma once

#include <array>
#include <memory>

#include "ctran/rdma/card.h"
#include "ctran/rdma/devices.h"
#include "ctran/verbs/virtual_qp.h"

namespace ctran {

/// What a connection has at one device: a virtual queue pair, and queues of its own.
class RdmaRail {
 public:
  static constexpr uint32_t kMessages = 256;
  /// The `wr_id` of a notice of the peer's, in what poll() hands over.
  static constexpr uint64_t kNotice = UINT64_MAX;

  static ibverbx::Expected<std::unique_ptr<RdmaRail>> open(const IbDevice& device, size_t index);

  /// The device's place in the list of them.
  size_t index() const { return index_; }
  const IbDevice& device() const { return device_; }
  const RdmaCard::Rail& card() const { return card_; }
  const std::shared_ptr<RdmaWatch>& watch() const { return watch_; }
  ibverbx::Maybe connect(const RdmaCard::Rail& card);

  bool hasRoom() const { return underWay_ < kMessages; }
  uint32_t underWay() const { return underWay_; }
  /// Posts a write, a write with a notice, or a read. Completes once, with `id`. `mayInline`: the
  /// processor can read the memory.
  ibverbx::Maybe post(ibverbx::ibv_wr_opcode opcode, uint64_t id, uint64_t local, uint32_t lkey,
                      uint64_t remote, uint32_t rkey, uint32_t bytes, bool mayInline = false);

  /// Hands over what has completed; an error is one of the queue.
  template <typename Completed>
  ibverbx::Maybe poll(const Completed& completed);
  /// Readable when there is something to poll; see arm().
  int fd() const { return channel_.fd(); }
  /// Makes `fd` tell of the next completion; what came before has to be polled for.
  ibverbx::Maybe arm();
  /// Takes what made `fd` readable.
  void disarm() { armed_ = channel_.drain() == 0 && armed_; }
  bool isArmed() const { return armed_; }
  void fail() { qp_->fail(); }

 private:
  RdmaRail(const IbDevice& device, size_t index, ibverbx::IbvCompChannel channel)
      : device_(device), index_(index), channel_(std::move(channel)) {}
  ibverbx::Maybe makeQp();
  ibverbx::Maybe postReceive();

  const IbDevice& device_;
  const size_t index_;
  ibverbx::IbvCompChannel channel_;
  std::unique_ptr<ibverbx::IbvVirtualCq> cq_;
  std::unique_ptr<ibverbx::IbvVirtualQp> qp_;
  RdmaCard::Rail card_;
  const std::shared_ptr<RdmaWatch> watch_ = std::make_shared<RdmaWatch>();
  uint32_t underWay_ = 0;
  bool armed_ = false;
};

template <typename Completed>
ibverbx::Maybe RdmaRail::poll(const Completed& completed) {
  std::array<ibverbx::ibv_wc, 32> completions;
  for (;;) {
    const ibverbx::Expected<int> count = cq_->pollCq(completions);
    if (!count) return count.error();
    for (int i = 0; i < *count; ++i) {
      const ibverbx::ibv_wc& wc = completions[i];
      if (wc.wr_id != kNotice) {
        --underWay_;
      } else if (wc.status == ibverbx::IBV_WC_SUCCESS) {
        if (ibverbx::Maybe posted = postReceive(); !posted && !qp_->failed()) return posted;
      }
      completed(wc);
    }
    if (*count < static_cast<int>(completions.size())) return ibverbx::Unit{};
  }
}

}  // namespace ctran
