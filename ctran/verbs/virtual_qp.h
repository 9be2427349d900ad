#pragma once

#include <memory>
#include <vector>

#include "ctran/verbs/objects.h"
#include "ctran/verbs/sequence_window.h"
#include "ctran/verbs/virtual_cq.h"

namespace ibverbx {

/// How one message goes over many queue pairs.
enum class LoadBalancingScheme : uint8_t {
  /// Every fragment is a write with an immediate that carries its number; the receiver, who has a
  /// receive posted for each, puts them in order. One way from the first byte to the notice.
  DQPLB,
  /// Fragments are plain writes; when all are known to be placed, an empty write with an immediate,
  /// on a queue pair of its own, is the notice. One round trip more; the receiver's work does not
  /// grow with the number of fragments. A small message goes with its notice, as soon as all before
  /// it are known to be placed, or have their notice before it on that queue pair.
  SPRAY,
};

/// The same on both ends.
struct IbvVirtualQpConfig {
  LoadBalancingScheme scheme = LoadBalancingScheme::DQPLB;
  uint32_t numQps = 4;                     ///< those for data
  uint32_t maxFragmentBytes = 256 * 1024;  ///< of one work request
  uint32_t maxFragmentsPerQp = 64;         ///< posted and not completed
  uint32_t maxMessages = 256;              ///< posted and not completed; of each direction
  /// SPRAY: messages with a notice of up to so many bytes, which fit into a fragment, go with it.
  uint32_t maxJoinedBytes = 4096;
  /// Fragments up to this size leave with their work request; less where the device has less room.
  uint32_t maxInlineBytes = 0;
  bool inlinesAll = true;  ///< else those of messages that are posted with IBV_SEND_INLINE
  uint8_t port = 1;        ///< of this end
  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
};

/// What the other end must know to connect.
struct IbvVirtualQpBusinessCard {
  LoadBalancingScheme scheme = LoadBalancingScheme::DQPLB;
  uint32_t maxFragmentsPerQp = 0;
  std::vector<uint32_t> qpNums;  ///< those for data, then the one for notices if there is one
};

/// One connection over many queue pairs of one device. A message is split into fragments, each on
/// whichever queue pair has room, so that paths of a network are used together.
///
/// Messages complete in the order of posting, for the sender as for the receiver. When the receiver
/// gets a notice, the data of this message and of all before it are in its memory.
///
/// When something fails, all queue pairs go to ERR. The messages that are not done complete with
/// what failed or with IBV_WC_WR_FLUSH_ERR, and so do those after them, even if their data arrived.
/// Each completes when the device has let go of all its fragments: then its local memory is neither
/// read nor written any more. What is still on its way may be written at the other end until the
/// queue pairs there are in ERR, too.
class IbvVirtualQp {
 public:
  /// In state INIT, with what it needs to receive posted.
  static Expected<std::unique_ptr<IbvVirtualQp>> create(const IbvContext& context, const IbvPd& pd,
                                                        IbvVirtualCq& sendCq, IbvVirtualCq& recvCq,
                                                        const IbvVirtualQpConfig& config);
  ~IbvVirtualQp();
  IbvVirtualQp(const IbvVirtualQp&) = delete;
  IbvVirtualQp& operator=(const IbvVirtualQp&) = delete;

  IbvVirtualQpBusinessCard businessCard() const;
  /// To RTS. `path.remoteQpNum` is taken from the card.
  Maybe connect(const IbvVirtualQpBusinessCard& card, IbvRtrOptions path, const IbvRtsOptions& rts);

  /// Posts a list of messages: IBV_WR_RDMA_WRITE_WITH_IMM notifies the receiver (the immediate is
  /// ours: the request's is not sent), IBV_WR_RDMA_WRITE does not, IBV_WR_RDMA_READ reads. At most
  /// one element of memory each; flags may have IBV_SEND_SIGNALED, and IBV_SEND_INLINE, which lets
  /// it leave with its work request if it is small enough (its memory is still its until it
  /// completes). On an error `*bad` is the first that was not posted. No allocation.
  Maybe postSend(ibv_send_wr* wr, ibv_send_wr** bad);
  /// Posts receives, without memory: each completes with a notice. `byte_len` is then how much was
  /// written since the notice before (DQPLB), or 0 (SPRAY).
  Maybe postRecv(ibv_recv_wr* wr, ibv_recv_wr** bad);

  /// Ends it: everything that is posted completes, as after a failure.
  void fail();
  /// Whether something has failed; it can then only be destroyed.
  bool failed() const { return failed_; }
  uint32_t qpNum() const { return qps_.front().qpNum(); }

 private:
  friend class IbvVirtualCq;
  struct Message {
    uint64_t wrId, localAddress, remoteAddress;
    uint32_t length, lkey, rkey;
    ibv_wr_opcode opcode;
    bool signaled, notify;
    bool inlines;       ///< as far as it is small enough
    bool joined;        ///< it goes with its notice
    bool posted;        ///< all fragments, or it is joined
    bool noticed;       ///< the notice is posted, or none is needed
    uint32_t offset;    ///< of the next fragment
    uint32_t underWay;  ///< work requests not completed
    ibv_wc_status status;
  };

  IbvVirtualQp(IbvVirtualCq& sendCq, IbvVirtualCq& recvCq, const IbvVirtualQpConfig& config);

  bool sprays() const { return config_.scheme == LoadBalancingScheme::SPRAY; }
  /// The queue pairs over which marks come.
  size_t firstMarked() const { return sprays() ? config_.numQps : 0; }
  Message& message(uint64_t number) { return messages_[number & (messages_.size() - 1)]; }

  Maybe open(const IbvContext& context, const IbvPd& pd);
  Maybe attach(IbvVirtualCq& cq, size_t index, int entries);
  void completed(uint16_t index, const ibv_wc& wc);
  bool next(bool receives, ibv_wc& completion);
  bool nextSend(ibv_wc& completion);
  bool nextRecv(ibv_wc& completion);
  void progress();
  void postNotices();
  bool postFragment(uint64_t number);
  bool postNotice(uint64_t number);
  bool post(size_t qp, ibv_send_wr& wr);
  bool inlines(const Message& message, uint32_t bytes) const {
    return message.inlines && bytes <= config_.maxInlineBytes;
  }
  bool postMarkReceives(size_t qp, uint32_t count);
  void owe(size_t qp);
  void repay(size_t qp);
  /// Whether receives that were used up are to be posted by the next poll, before it waits.
  bool owes() const { return owedInAll_ > 0 && !failed_; }
  void repay();
  void fail(ibv_wc_status receiveStatus);

  IbvVirtualQpConfig config_;
  IbvVirtualCq& sendCq_;
  IbvVirtualCq& recvCq_;
  IbvVirtualCq::Endpoint sendEndpoint_, recvEndpoint_;
  struct Reservation {
    IbvVirtualCq* cq;
    size_t index;
    int entries;
  };
  std::vector<Reservation> reserved_;
  std::vector<IbvQp> qps_;
  bool connected_ = false;
  bool failed_ = false;

  // Sending: messages are numbered; done_ <= noticing_ <= splitting_ <= posted_ (DQPLB does not use
  // noticing_).
  std::vector<Message> messages_;
  uint64_t posted_ = 0, splitting_ = 0, noticing_ = 0, done_ = 0;
  uint64_t sequence_ = 0;
  bool sendFailed_ = false;  ///< a message has completed with an error: so do all that follow
  size_t turn_ = 0;          ///< the queue pair that is asked first
  std::vector<uint32_t> sendsUnderWay_;  ///< of each queue pair

  // Receiving.
  SequenceWindow window_;
  std::vector<uint64_t> recvs_;  ///< the user's requests
  uint64_t recvsPosted_ = 0, recvsDone_ = 0;
  uint32_t bytesSinceNotice_ = 0;
  uint32_t markReceives_ = 0;   ///< posted on all queue pairs
  std::vector<uint32_t> owed_;  ///< of each queue pair: used up, and not posted again
  uint32_t owedInAll_ = 0;
  ibv_wc_status recvStatus_ = IBV_WC_WR_FLUSH_ERR;
};

}  // namespace ibverbx
