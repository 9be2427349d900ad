#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "ctran/os/shared_memory.h"
#include "ctran/transport/ib/device.h"
#include "ctran/transport/ib/regions.h"
#include "ctran/transport/tcp/link.h"

namespace ctran {

/// What the other end of a link has to know. It travels as it is, over the TCP connection.
struct IbCard {
  static constexpr uint32_t kVersion = 1;
  uint32_t version = kVersion;
  uint32_t qps = 0;
  uint32_t qpNums[16] = {};
  uint8_t gid[16] = {};
  uint32_t lid = 0, mtu = 0, psn = 0;
  uint32_t key = 0;             ///< of the memory below: the ring, then the word
  uint64_t ring = 0, word = 0;  ///< addresses
  uint64_t ringBytes = 0;
};
static_assert(sizeof(IbCard) == 128);

/// Frames between two ranks over RDMA, as Link is over a TCP connection; never blocks.
///
/// The sender writes frames, header and payload, into a ring in the receiver's registered memory,
/// one notice each. It copies them from registered memory of its own, which is a ring alike. The
/// receiver copies each to where it belongs, and writes how far it has come into a word of the
/// sender's memory, which gives the sender room again.
///
/// A message with a placement is written to its target by the device; its frame follows it.
///
/// What comes from the other end is not trusted: a header is copied before it is looked at, the
/// word must be between what it was and what has been sent.
class IbLink {
 public:
  static constexpr uint32_t kFragmentsPerQp = 64;

  /// Queue pairs and rings; an error is one of this rank.
  static ibverbx::Expected<std::unique_ptr<IbLink>> create(IbDevice& device);
  ~IbLink();

  const IbCard& card() const { return card_; }
  const IbDevice& device() const { return device_; }
  /// The other end's card has come.
  ibverbx::Maybe connect(const IbCard& card);
  bool isConnected() const { return remote_.ringBytes != 0; }

  void push(Link::Outgoing frame) { urgent_.push_back(std::move(frame)); }
  /// Writes what there is room for of what waits here, then of `bulk`; see Link::write. With the
  /// memory of a frame it is done then; with a message that is placed when collect() says so.
  void write(Link::Frames& bulk, const std::function<void(void*, size_t)>& written);
  /// Tells of messages that were placed, whose memory the device has let go of.
  void collect(const std::function<void(void*, size_t)>& written);
  /// Whether something waits here, or has not been acknowledged by the other end's device.
  bool hasOutput() const { return !urgent_.empty() || posted_ != completed_; }
  /// Frames written, all of which the other end's device has acknowledged.
  bool isProven() const { return notices_ > 0 && posted_ == completed_ && !hasFailed(); }
  void dropWaiting() { urgent_.clear(); }
  void forget(const void* owner) {
    std::erase_if(urgent_, [owner](const Link::Outgoing& each) { return each.owner == owner; });
    for (Placing& each : placing_) {
      if (each.owner == owner) each.owner = nullptr;
    }
  }

  /// Reads the frames that have come. Empty, or why the peer is not to be trusted.
  std::string read(Link::Reader& reader);
  bool hasInput() const { return arrived_ != taken_; }

  /// Nothing moves any more, and nothing is written by the other end when this has returned.
  void close();
  bool hasFailed() const { return !why_.empty(); }
  const std::string& why() const { return why_; }
  /// Payload written so far.
  uint64_t bytesWritten() const { return bytesWritten_; }
  /// Messages placed so far.
  uint64_t messagesPlaced() const { return messagesPlaced_; }

  // For the device.
  void completed(const ibverbx::ibv_wc& wc);
  void broken(const std::string& why);

 private:
  explicit IbLink(IbDevice& device) : device_(device) {}
  ibverbx::Maybe open();
  bool postReceive();
  bool post(ibverbx::ibv_wr_opcode opcode, const std::byte* from, uint64_t to, size_t bytes,
            uint32_t lkey, uint32_t rkey);
  size_t room();
  bool put(const FrameHeader& header, const std::byte* payload);
  bool place(const Link::Outgoing& frame);
  void copyIn(uint64_t position, const void* from, size_t bytes);
  void copyOut(uint64_t position, void* to, size_t bytes) const;
  void giveCredit();

  IbDevice& device_;
  size_t ringBytes_ = 0;
  std::shared_ptr<SharedMapping> memory_;  // shared with nobody: a mapping that is page-aligned
  std::byte* incoming_ = nullptr;          // written by the other end: the ring,
  uint64_t* consumedThere_ = nullptr;      // and the word
  std::byte* outgoing_ = nullptr;          // ours: a ring,
  uint64_t* consumedHere_ = nullptr;       // and the word's next value
  std::vector<ibverbx::IbvMr> regions_;    // of both
  std::unique_ptr<ibverbx::IbvVirtualQp> qp_;
  IbCard card_, remote_;
  std::string why_;

  Link::Frames urgent_;
  uint32_t depth_ = 0;                   // work requests under way at most
  uint64_t posted_ = 0, completed_ = 0;  // work requests
  uint64_t notices_ = 0;
  uint64_t head_ = 0;      // bytes written to the other end's ring
  uint64_t released_ = 0;  // of those consumed there, as it says
  uint64_t bytesWritten_ = 0;
  struct Placing {
    uint64_t last;  // work request
    void* owner;    // null: nobody waits for it any more
    size_t bytes;
    std::shared_ptr<const IbPlacement> placement;
  };
  std::deque<Placing> placing_;
  uint64_t messagesPlaced_ = 0;
  uint64_t creditPosted_ = 0;  // the work request of the last word

  uint64_t arrived_ = 0, taken_ = 0;  // frames
  uint64_t tail_ = 0, told_ = 0;      // bytes consumed here, and told
};

}  // namespace ctran
