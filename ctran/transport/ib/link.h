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

/// Devices of a rank that a pair may try one after the other, at most.
inline constexpr uint32_t kMaxWays = 64;

/// What the other end of a link has to know. It travels as it is, over the TCP connection.
struct IbCard {
  static constexpr uint32_t kMostQps = 16;
  static constexpr uint32_t kVersion = 2;
  static constexpr uint32_t kNone = 0;  ///< instead of the version: there is no device to use
  uint32_t version = kVersion;
  uint32_t qps = 0;
  uint32_t qpNums[kMostQps] = {};
  uint8_t gid[16] = {};
  uint32_t lid = 0, mtu = 0, psn = 0;
  uint32_t key = 0;             ///< of the memory below: the ring, then the word
  uint64_t ring = 0, word = 0;  ///< addresses
  uint64_t ringBytes = 0;
  uint32_t devices = 0;  ///< that this end may use together,
  uint32_t ways = 0;     ///< and one after the other
  uint32_t device = 0;   ///< the number of this end's, in the keys of registered memory
  uint32_t reads = 0;    ///< that it serves at a time
};
static_assert(sizeof(IbCard) == 144);

/// Why no peer of this version would send such a card; null if one might.
const char* whyInvalid(const IbCard& card);

/// Frames between two ranks over one device each, as Link is over a TCP connection; never blocks.
///
/// The sender writes frames, header and payload, into a ring in the receiver's registered memory,
/// one notice each. It copies them from registered memory of its own, which is a ring alike. The
/// receiver copies each to where it belongs, and writes how far it has come into a word of the
/// sender's memory, which gives the sender room again.
///
/// A message, or part of one, with a placement is written to its target by the device; its frame
/// follows it.
///
/// Put and Get with a placement write and read registered memory of the other end; no frame
/// follows. What comes after a Put is read after its data are in place, and what comes after a Get
/// leaves when that is done.
///
/// The sender's ring holds what the receiver has not read, as far as the sender knows. So when a
/// link has failed, and the receiver says how far it has read, nothing is lost: see handBack.
///
/// What comes from the other end is not trusted: a header is copied before it is looked at, the
/// word must be between what it was and what has been sent, a notice must be one that can come.
/// Otherwise the link has failed, and isForged().
class IbLink {
 public:
  static constexpr uint32_t kFragmentsPerQp = 64;

  /// Queue pairs and rings; an error is one of this rank.
  /// `rail`: its number among the links of a pair of ranks. Of `card` it takes the numbers of
  /// devices.
  static ibverbx::Expected<std::unique_ptr<IbLink>> create(IbDevice& device, uint32_t rail,
                                                           const IbCard& card);
  ~IbLink();

  const IbCard& card() const { return card_; }
  const IbDevice& device() const { return device_; }
  /// What the other end has said; zeros before.
  const IbCard& remote() const { return remote_; }
  bool has(uint32_t qpNum) const;
  /// The other end's card has come.
  ibverbx::Maybe connect(const IbCard& card);
  bool isConnected() const { return remote_.ringBytes != 0; }

  void push(Link::Outgoing frame) { urgent_.push_back(std::move(frame)); }
  using Written = std::function<void(void*, size_t)>;
  /// Writes what there is room for of what waits here; see Link::write. With the memory of a frame
  /// it is done then; with what is placed when collect() says so.
  void write(const Written& written);
  /// Writes the first frame of `bulk`, or a part of it, if there is room and nothing waits here.
  bool writeOne(Link::Frames& bulk, const Written& written);
  /// Tells of messages that were placed, whose memory the device has let go of.
  void collect(const Written& written);
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

  /// Nothing moves any more, and nothing is written by the other end when this has returned. What
  /// waits here stays, for handBack.
  void stop();
  /// Of the stream of frames that this end has read.
  uint64_t bytesRead() const { return tail_; }
  /// After stop(): what the other end has not read, which has read `bytes` and reads no more, for
  /// another way and in order. A frame with a placement is a message, or part, that is not placed.
  /// `written` as in collect(). Empty, or why the peer is not to be trusted.
  std::string handBack(uint64_t bytes, Link::Frames& frames, const Written& written);
  /// stop(), and drops what waits here.
  void close();
  bool hasFailed() const { return !why_.empty(); }
  const std::string& why() const { return why_; }
  /// Whether it has failed because the other end has written what no peer of this version writes.
  bool isForged() const { return isForged_; }
  /// Payload written so far.
  uint64_t bytesWritten() const { return bytesWritten_; }

  // For the device.
  void completed(const ibverbx::ibv_wc& wc);
  void broken(const std::string& why);

 private:
  IbLink(IbDevice& device, uint32_t rail) : device_(device), rail_(rail) {}
  ibverbx::Maybe open();
  bool postReceive();
  void distrust(const std::string& why);
  bool post(ibverbx::ibv_wr_opcode opcode, const std::byte* from, uint64_t to, size_t bytes,
            uint32_t lkey, uint32_t rkey);
  size_t room();
  bool put(const FrameHeader& header, const std::byte* payload);
  bool canPlace(const Link::Outgoing& frame) const;
  bool place(const Link::Outgoing& frame);
  bool move(const Link::Outgoing& frame);
  bool hasRoomFor(size_t bytes) const;
  bool postMemory(ibverbx::ibv_wr_opcode opcode, const Link::Outgoing& frame);
  bool take(Link::Frames& from, const Written& written);
  void copyIn(uint64_t position, const void* from, size_t bytes);
  void copyOut(const std::byte* ring, uint64_t position, void* to, size_t bytes) const;
  void giveCredit();

  IbDevice& device_;
  const uint32_t rail_;
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
  bool isForged_ = false;

  Link::Frames urgent_;
  uint32_t depth_ = 0;                   // work requests under way at most
  uint64_t posted_ = 0, completed_ = 0;  // work requests
  uint64_t notices_ = 0;
  uint64_t head_ = 0;      // bytes written to the other end's ring
  uint64_t released_ = 0;  // of those consumed there, as it says
  uint64_t bytesWritten_ = 0;
  struct Placing {
    uint64_t last;      // work request
    uint64_t position;  // of its frame in the stream
    void* owner;        // null: nobody waits for it any more
    const std::byte* data;
    size_t bytes;
    std::shared_ptr<const IbPlacement> placement;
    FrameHeader header;
    bool isOneSided() const { return header.type != FrameType::Placed; }
  };
  std::deque<Placing> placing_;
  uint64_t readsUntil_ = 0;    // the work request of the last read
  uint64_t creditPosted_ = 0;  // the work request of the last word

  uint64_t arrived_ = 0, taken_ = 0;  // frames
  uint64_t tail_ = 0, told_ = 0;      // bytes consumed here, and told
};

}  // namespace ctran
