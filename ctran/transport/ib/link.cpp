#include "ctran/transport/ib/link.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ctran/os/process.h"

namespace ctran {

using namespace ibverbx;

namespace {

constexpr uint32_t kMessages = 256;
constexpr uint32_t kInlineBytes = 96;
constexpr size_t kPage = 4096;
/// Of a large message: a ring holds several, so that copying and sending overlap.
constexpr size_t kPieceBytes = 32 << 10;
/// Of a message that is placed, in one work request of the virtual queue pair.
constexpr size_t kPlacedBytes = 1 << 30;

uint64_t addressOf(const void* at) { return reinterpret_cast<uint64_t>(at); }

ibv_mtu mtuOf(uint32_t bytes) {
  unsigned code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && 256u << code <= bytes) ++code;
  return static_cast<ibv_mtu>(code);
}

}  // namespace

Expected<std::unique_ptr<IbLink>> IbLink::create(IbDevice& device) {
  std::unique_ptr<IbLink> made(new IbLink(device));
  if (Maybe opened = made->open(); !opened) return opened.error();
  return made;
}

Maybe IbLink::open() {
  const IbSettings& settings = device_.settings();
  ringBytes_ = settings.ringBytes / kPage * kPage;
  const size_t half = ringBytes_ + kPage;
  memory_ = SharedMapping::map(createSharedMemory("ctran-ib", 2 * half), 2 * half);
  incoming_ = memory_->data();
  consumedThere_ = reinterpret_cast<uint64_t*>(incoming_ + ringBytes_);
  outgoing_ = incoming_ + half;
  consumedHere_ = reinterpret_cast<uint64_t*>(outgoing_ + ringBytes_);
  // The other end may write to the first half, and to nothing else.
  for (const unsigned access : {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0u}) {
    Expected<IbvMr> region = device_.pd().regMr(access != 0 ? incoming_ : outgoing_, half, access);
    if (!region) return region.error();
    regions_.push_back(*std::move(region));
  }
  IbvVirtualQpConfig config;
  config.numQps = settings.numQps;
  // What the devices have been given gets there by itself. More would wait in the virtual queue
  // pair for this rank to poll, which it need not do any more once it has sent.
  depth_ = std::min(kMessages, kFragmentsPerQp * settings.numQps);
  config.maxFragmentsPerQp = kFragmentsPerQp;
  config.maxMessages = kMessages;
  config.port = device_.port();
  config.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  config.maxFragmentBytes = std::min(config.maxFragmentBytes, device_.portAttributes().max_msg_sz);
  config.maxInlineBytes = kInlineBytes;
  auto qp =
      IbvVirtualQp::create(device_.context(), device_.pd(), device_.cq(), device_.cq(), config);
  if (!qp) {  // not every device has so much room in a work request
    config.maxInlineBytes = 0;
    qp = IbvVirtualQp::create(device_.context(), device_.pd(), device_.cq(), device_.cq(), config);
  }
  if (!qp) return qp.error();
  qp_ = *std::move(qp);
  device_.add(qp_->qpNum(), *this);
  for (uint32_t i = 0; i < kMessages; ++i) {
    if (!postReceive()) return Error{EIO, why_};
  }
  const IbvVirtualQpBusinessCard numbers = qp_->businessCard();
  card_.qps = static_cast<uint32_t>(numbers.qpNums.size());
  std::copy(numbers.qpNums.begin(), numbers.qpNums.end(), card_.qpNums);
  std::memcpy(card_.gid, device_.gid().gid.raw, sizeof card_.gid);
  card_.lid = device_.portAttributes().lid;
  card_.mtu = device_.portAttributes().active_mtu;
  if (settings.mtuBytes != 0) {
    card_.mtu = std::min<uint32_t>(card_.mtu, mtuOf(settings.mtuBytes));
  }
  fillRandom(reinterpret_cast<std::byte*>(&card_.psn), sizeof card_.psn);
  card_.psn &= 0xffffff;
  card_.key = regions_.front().rkey();
  card_.ring = addressOf(incoming_);
  card_.word = addressOf(consumedThere_);
  card_.ringBytes = ringBytes_;
  return Unit{};
}

IbLink::~IbLink() {
  if (qp_) device_.drop(qp_->qpNum());
}

Maybe IbLink::connect(const IbCard& card) {
  if (isConnected()) return Error{EINVAL, "its card came twice"};
  if (card.version != IbCard::kVersion) return Error{EINVAL, "it is of another version"};
  if (card.qps != card_.qps) return Error{EINVAL, "it has another number of queue pairs"};
  if (card.ringBytes != card_.ringBytes) return Error{EINVAL, "its ring has another size"};
  if (card.mtu < IBV_MTU_256 || card.mtu > IBV_MTU_4096 || card.lid > UINT16_MAX) {
    return Error{EINVAL, "its card makes no sense"};
  }
  const IbSettings& settings = device_.settings();
  IbvRtrOptions path;
  std::memcpy(path.remoteGid.raw, card.gid, sizeof card.gid);
  path.remoteLid = static_cast<uint16_t>(card.lid);
  path.port = device_.port();
  path.gidIndex = static_cast<uint8_t>(device_.gid().gid_index);
  path.trafficClass = settings.trafficClass;
  path.serviceLevel = settings.serviceLevel;
  path.mtu = static_cast<ibv_mtu>(std::min(card.mtu, card_.mtu));
  path.psn = card.psn & 0xffffff;
  IbvRtsOptions rts;
  rts.timeout = settings.timeout;
  rts.retryCount = settings.retryCount;
  rts.psn = card_.psn;
  IbvVirtualQpBusinessCard numbers = qp_->businessCard();
  numbers.qpNums.assign(card.qpNums, card.qpNums + card.qps);
  if (Maybe done = qp_->connect(numbers, path, rts); !done) return done;
  remote_ = card;
  return Unit{};
}

bool IbLink::postReceive() {
  ibv_recv_wr wr{}, *bad = nullptr;
  const Maybe done = qp_->postRecv(&wr, &bad);
  if (!done) broken(done.error().errStr);
  return done.hasValue();
}

bool IbLink::post(ibv_wr_opcode opcode, const std::byte* from, uint64_t to, size_t bytes,
                  uint32_t lkey, uint32_t rkey) {
  ibv_sge sge{addressOf(from), static_cast<uint32_t>(bytes), lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = posted_;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = to;
  wr.wr.rdma.rkey = rkey;
  const Maybe done = qp_->postSend(&wr, &bad);
  if (!done) {
    broken(done.error().errStr);
    return false;
  }
  ++posted_;
  return true;
}

/// Bytes of the other end's ring that it has consumed, or that were never used. A frame that it has
/// consumed has been read from this end's memory.
size_t IbLink::room() {
  const uint64_t said = std::atomic_ref(*consumedThere_).load(std::memory_order_acquire);
  if (said < released_ || said > head_) {
    broken("the other end gave back more than it was sent");
    return 0;
  }
  released_ = said;
  return ringBytes_ - (head_ - released_);
}

void IbLink::copyIn(uint64_t position, const void* from, size_t bytes) {
  const size_t at = position % ringBytes_;
  const size_t first = std::min(bytes, ringBytes_ - at);
  if (bytes == 0) return;
  std::memcpy(outgoing_ + at, from, first);
  std::memcpy(outgoing_, static_cast<const std::byte*>(from) + first, bytes - first);
}

void IbLink::copyOut(uint64_t position, void* to, size_t bytes) const {
  const size_t at = position % ringBytes_;
  const size_t first = std::min(bytes, ringBytes_ - at);
  if (bytes == 0) return;
  std::memcpy(to, incoming_ + at, first);
  std::memcpy(static_cast<std::byte*>(to) + first, incoming_, bytes - first);
}

/// False if there is no room now.
bool IbLink::put(const FrameHeader& header, const std::byte* payload) {
  const size_t bytes = sizeof header + header.bytes;
  // Two for the frame, where the ring ends within it, and one is left for a word.
  if (hasFailed() || posted_ - completed_ + 3 > depth_ || room() < bytes) return false;
  copyIn(head_, &header, sizeof header);
  copyIn(head_ + sizeof header, payload, header.bytes);
  const size_t at = head_ % ringBytes_;
  const size_t first = std::min(bytes, ringBytes_ - at);
  const uint32_t lkey = regions_.back().lkey();
  if (first < bytes) {
    if (!post(IBV_WR_RDMA_WRITE, outgoing_ + at, remote_.ring + at, first, lkey, remote_.key))
      return false;
    if (!post(IBV_WR_RDMA_WRITE_WITH_IMM, outgoing_, remote_.ring, bytes - first, lkey,
              remote_.key)) {
      return false;
    }
  } else if (!post(IBV_WR_RDMA_WRITE_WITH_IMM, outgoing_ + at, remote_.ring + at, bytes, lkey,
                   remote_.key)) {
    return false;
  }
  head_ += bytes;
  ++notices_;
  bytesWritten_ += header.bytes;
  return true;
}

/// False if there is no room now. The frame is read after the data are in place: notices are in
/// order with all that was written before.
bool IbLink::place(const Link::Outgoing& frame) {
  const IbPlacement& placement = *frame.placement;
  const size_t writes = (placement.bytes + kPlacedBytes - 1) / kPlacedBytes;
  if (hasFailed() || posted_ - completed_ + writes + 3 > std::max<size_t>(depth_, writes + 3) ||
      room() < sizeof frame.header) {
    return false;
  }
  const uint32_t lkey = placement.from->lkey(device_);
  for (size_t at = 0; at < placement.bytes; at += kPlacedBytes) {
    const size_t bytes = std::min(kPlacedBytes, placement.bytes - at);
    if (!post(IBV_WR_RDMA_WRITE, frame.data + at, placement.to.address + at, bytes, lkey,
              placement.to.key)) {
      return false;
    }
  }
  placing_.push_back({posted_, frame.owner, placement.bytes, frame.placement});
  ++messagesPlaced_;
  bytesWritten_ += placement.bytes;
  return put(frame.header, nullptr);
}

void IbLink::collect(const std::function<void(void*, size_t)>& written) {
  while (!placing_.empty() && completed_ >= placing_.front().last && !hasFailed()) {
    const Placing done = std::move(placing_.front());
    placing_.pop_front();
    if (done.owner != nullptr) written(done.owner, done.bytes);
  }
}

void IbLink::write(Link::Frames& bulk, const std::function<void(void*, size_t)>& written) {
  const auto take = [&](Link::Frames& from) {
    Link::Outgoing& frame = from.front();
    if (frame.placement) {
      if (!place(frame)) return false;
      from.pop_front();
      return true;
    }
    FrameHeader piece = frame.header;
    // Data may come in any pieces.
    if (piece.type == FrameType::Data) {
      piece.bytes = static_cast<uint32_t>(std::min<size_t>(piece.bytes, kPieceBytes));
    }
    const std::byte* payload = frame.owned.empty() ? frame.data : frame.owned.data();
    if (!put(piece, payload)) return false;
    void* const owner = frame.owner;
    if (piece.bytes == frame.header.bytes) {
      from.pop_front();
    } else {
      frame.header.bytes -= piece.bytes;
      frame.header.offset += piece.bytes;
      frame.data += piece.bytes;
    }
    if (owner != nullptr) written(owner, piece.bytes);
    return true;
  };
  if (!isConnected()) return;
  while (!urgent_.empty()) {
    if (!take(urgent_)) return;
  }
  while (!bulk.empty() && take(bulk)) continue;
}

std::string IbLink::read(Link::Reader& reader) {
  while (hasInput()) {
    FrameHeader header;
    copyOut(tail_, &header, sizeof header);
    if (const char* why = whyInvalid(header)) return std::string("it sent ") + why;
    if (sizeof header + header.bytes > ringBytes_) return "it sent a frame beyond its ring";
    try {
      std::byte* const into = reader.begin(header);
      if (into != nullptr) copyOut(tail_ + sizeof header, into, header.bytes);
      reader.end(header);
    } catch (const std::string& why) {
      return why;
    }
    tail_ += sizeof header + header.bytes;
    ++taken_;
    giveCredit();
  }
  return {};
}

/// One word is on its way at a time: its source is not to change meanwhile.
void IbLink::giveCredit() {
  if (tail_ - told_ < ringBytes_ / 4 || hasFailed() || creditPosted_ > completed_) return;
  if (posted_ - completed_ + 1 > depth_) return;
  told_ = *consumedHere_ = tail_;
  if (!post(IBV_WR_RDMA_WRITE, reinterpret_cast<const std::byte*>(consumedHere_), remote_.word,
            sizeof *consumedHere_, regions_.back().lkey(), remote_.key)) {
    return;
  }
  creditPosted_ = posted_;
}

void IbLink::completed(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    return broken(VerbsLibrary::get().wc_status_str(wc.status));
  }
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    ++arrived_;
    if (!qp_->failed()) postReceive();
  } else {
    ++completed_;
    giveCredit();
  }
}

void IbLink::broken(const std::string& why) {
  if (!hasFailed()) why_ = why.empty() ? "it failed" : why;
}

void IbLink::close() {
  broken("it was closed");
  qp_->fail();
  urgent_.clear();
}

}  // namespace ctran
