#include "ctran/transport/ib/link.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <iterator>

#include "ctran/os/process.h"

namespace ctran {

using namespace ibverbx;

namespace {

constexpr uint32_t kMessages = 256;
constexpr uint32_t kInlineBytes = 96;
/// Of a large message: a ring holds several, so that copying and sending overlap.
constexpr size_t kPieceBytes = 32 << 10;
/// Of a message that is placed, in one work request of the virtual queue pair.
constexpr size_t kPlacedBytes = 1 << 30;

/// The `wr_id` of receives; others are the numbers of work requests.
constexpr uint64_t kNoticeReceive = UINT64_MAX;

ibv_mtu mtuOf(uint32_t bytes) {
  unsigned code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && 256u << code <= bytes) ++code;
  return static_cast<ibv_mtu>(code);
}

}  // namespace

const char* whyInvalid(const IbCard& card) {
  if (card.version != IbCard::kVersion) return nullptr;  // its numbers may mean something else
  if (card.qps < 1 || card.qps > IbCard::kMostQps)
    return "a card with a number of queue pairs that cannot be";
  const auto isNumber = [](uint32_t qp) { return qp > 0 && qp <= 0xffffff; };
  if (!std::all_of(card.qpNums, card.qpNums + card.qps, isNumber)) {
    return "a card with a queue pair that cannot be";
  }
  if (card.ways < 1 || card.ways > kMaxWays || card.devices < 1 || card.devices > card.ways ||
      card.device >= card.ways) {
    return "a card with devices that cannot be";
  }
  if (card.mtu < IBV_MTU_256 || card.mtu > IBV_MTU_4096 || card.lid > UINT16_MAX ||
      card.psn > 0xffffff || card.reads < 1 || card.reads > kMostReads || card.ringBytes == 0 ||
      card.ringBytes > kMostRingBytes) {
    return "a card with numbers out of bounds";
  }
  return nullptr;
}

Expected<std::unique_ptr<IbLink>> IbLink::create(IbDevice& device, uint32_t rail,
                                                 const IbCard& card) {
  std::unique_ptr<IbLink> made(new IbLink(device, rail));
  try {
    if (Maybe opened = made->open(); !opened) return opened.error();
  } catch (const std::exception& error) {  // of the system: no descriptor is left, for example
    return ibverbx::Error{ENOMEM, error.what()};
  }
  made->card_.devices = card.devices;
  made->card_.ways = card.ways;
  made->card_.device = card.device;
  return made;
}

Maybe IbLink::open() {
  const IbSettings& settings = device_.settings();
  if (!device_.hasRoomForLink()) {
    return ibverbx::Error{
        ENOSPC, "the completion queue of " + device_.name() + " has no room for another peer"};
  }
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
  config.access = IbRegion::kWritten | IbRegion::kRead;
  config.maxFragmentBytes = std::min(config.maxFragmentBytes, device_.portAttributes().max_msg_sz);
  config.maxInlineBytes = kInlineBytes;
  auto qp =
      IbvVirtualQp::create(device_.context(), device_.pd(), device_.cq(), device_.cq(), config);
  if (!qp) return qp.error();
  qp_ = *std::move(qp);
  device_.add(qp_->qpNum(), *this);
  for (uint32_t i = 0; i < kMessages; ++i) {
    if (!postReceive()) return ibverbx::Error{EIO, why_};
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
  card_.reads = static_cast<uint32_t>(
      std::clamp(device_.context().attributes().max_qp_rd_atom, 1, kMostReads));
  fillRandom(reinterpret_cast<std::byte*>(&card_.psn), sizeof card_.psn);
  card_.psn &= 0xffffff;
  card_.key = regions_.front().rkey();
  card_.ring = numberOf(incoming_);
  card_.word = numberOf(consumedThere_);
  card_.ringBytes = ringBytes_;
  return Unit{};
}

IbLink::~IbLink() {
  if (qp_) device_.drop(qp_->qpNum());
}

bool IbLink::has(uint32_t qpNum) const {
  return std::find(card_.qpNums, card_.qpNums + card_.qps, qpNum) != card_.qpNums + card_.qps;
}

Maybe IbLink::connect(const IbCard& card) {
  if (card.version == IbCard::kNone) {
    return ibverbx::Error{ENODEV, "it has no device that it can use"};
  }
  if (card.version != IbCard::kVersion) return ibverbx::Error{EINVAL, "it is of another version"};
  if (card.qps != card_.qps) return ibverbx::Error{EINVAL, "it has another number of queue pairs"};
  if (card.ringBytes != card_.ringBytes) return ibverbx::Error{EINVAL, "its ring has another size"};
  const IbSettings& settings = device_.settings();
  IbvRtrOptions path;
  std::memcpy(path.remoteGid.raw, card.gid, sizeof card.gid);
  path.remoteLid = static_cast<uint16_t>(card.lid);
  path.port = device_.port();
  path.gidIndex = static_cast<uint8_t>(device_.gid().gid_index);
  path.trafficClass = settings.trafficClass;
  path.serviceLevel = settings.serviceLevel;
  path.mtu = static_cast<ibv_mtu>(std::min(card.mtu, card_.mtu));
  path.psn = card.psn;
  path.maxDestReadAtomic = static_cast<uint8_t>(card_.reads);
  IbvRtsOptions rts;
  rts.timeout = settings.timeout;
  rts.retryCount = settings.retryCount;
  rts.psn = card_.psn;
  const int reads = device_.context().attributes().max_qp_init_rd_atom;
  rts.maxReadAtomic = static_cast<uint8_t>(std::clamp(reads, 1, static_cast<int>(card.reads)));
  IbvVirtualQpBusinessCard numbers = qp_->businessCard();
  numbers.qpNums.assign(card.qpNums, card.qpNums + card.qps);
  if (Maybe done = qp_->connect(numbers, path, rts); !done) return done;
  remote_ = card;
  return Unit{};
}

bool IbLink::postReceive() {
  ibv_recv_wr wr{kNoticeReceive, nullptr, nullptr, 0}, *bad = nullptr;
  const Maybe done = qp_->postRecv(&wr, &bad);
  if (!done) broken(done.error().errStr);
  return done.hasValue();
}

bool IbLink::post(ibv_wr_opcode opcode, const std::byte* from, uint64_t to, size_t bytes,
                  uint32_t lkey, uint32_t rkey) {
  ibv_sge sge{numberOf(from), static_cast<uint32_t>(bytes), lkey};
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
    distrust("it gave back more than it was sent");
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

void IbLink::copyOut(const std::byte* ring, uint64_t position, void* to, size_t bytes) const {
  const size_t at = position % ringBytes_;
  const size_t first = std::min(bytes, ringBytes_ - at);
  if (bytes == 0) return;
  std::memcpy(to, ring + at, first);
  std::memcpy(static_cast<std::byte*>(to) + first, ring, bytes - first);
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

bool IbLink::canPlace(const Link::Outgoing& frame) const {
  return (frame.placement->rails >> rail_ & 1) != 0;
}

/// For a message of so many bytes, and for a frame that follows it.
bool IbLink::hasRoomFor(size_t bytes) const {
  const size_t works = (bytes + kPlacedBytes - 1) / kPlacedBytes;
  return posted_ - completed_ + works + 3 <= std::max<size_t>(depth_, works + 3);
}

/// Writes or reads the other end's memory.
bool IbLink::postMemory(ibv_wr_opcode opcode, const Link::Outgoing& frame) {
  const IbPlacement& placement = *frame.placement;
  const uint32_t lkey = placement.from->lkey(device_);
  const uint64_t there = placement.to.address + frame.header.offset;
  for (size_t at = 0; at < frame.placedBytes; at += kPlacedBytes) {
    const size_t bytes = std::min<size_t>(kPlacedBytes, frame.placedBytes - at);
    if (!post(opcode, frame.data + at, there + at, bytes, lkey, placement.to.keys[rail_])) {
      return false;
    }
  }
  return true;
}

/// False if there is no room now. The frame is read after the data are in place: notices are in
/// order with all that was written before.
bool IbLink::place(const Link::Outgoing& frame) {
  if (hasFailed() || !hasRoomFor(frame.placedBytes) ||
      room() < sizeof frame.header + frame.header.bytes || !postMemory(IBV_WR_RDMA_WRITE, frame)) {
    return false;
  }
  const Placing placing{posted_,           head_,           frame.owner, frame.data,
                        frame.placedBytes, frame.placement, frame.header};
  if (!put(frame.header, reinterpret_cast<const std::byte*>(&frame.placedBytes))) return false;
  placing_.push_back(placing);
  bytesWritten_ += frame.placedBytes;
  return true;
}

/// A Put or a Get; false if there is no room now. Of one queue pair reads come after the writes
/// before them, of several only when those are done.
bool IbLink::move(const Link::Outgoing& frame) {
  const bool reads = frame.header.type == FrameType::Get;
  if (hasFailed() || !hasRoomFor(frame.placedBytes)) return false;
  if (reads && card_.qps > 1 && posted_ != completed_) return false;
  if (!postMemory(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, frame)) return false;
  placing_.push_back(
      {posted_, head_, frame.owner, frame.data, frame.placedBytes, frame.placement, frame.header});
  if (reads) {
    readsUntil_ = posted_;
  } else {
    bytesWritten_ += frame.placedBytes;
  }
  return true;
}

void IbLink::collect(const Written& written) {
  while (!placing_.empty() && completed_ >= placing_.front().last && !hasFailed()) {
    const Placing done = std::move(placing_.front());
    placing_.pop_front();
    if (done.owner != nullptr) written(done.owner, done.bytes);
  }
}

/// Writes the first of some frames, or a part of it; false if there is no room.
bool IbLink::take(Link::Frames& from, const Written& written) {
  Link::Outgoing& frame = from.front();
  if (frame.header.type != FrameType::Get && completed_ < readsUntil_) return false;
  if (frame.placement) {
    const bool isOneSided = frame.header.type != FrameType::Placed;
    if (!canPlace(frame) || !(isOneSided ? move(frame) : place(frame))) return false;
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
}

void IbLink::write(const Written& written) {
  while (isConnected() && !urgent_.empty() && take(urgent_, written)) continue;
}

bool IbLink::writeOne(Link::Frames& bulk, const Written& written) {
  return isConnected() && urgent_.empty() && !bulk.empty() && take(bulk, written);
}

std::string IbLink::read(Link::Reader& reader) {
  while (hasInput()) {
    FrameHeader header;
    copyOut(incoming_, tail_, &header, sizeof header);
    if (const char* why = whyInvalid(header)) return std::string("it sent ") + why;
    if (sizeof header + header.bytes > ringBytes_) return "it sent a frame beyond its ring";
    try {
      std::byte* const into = reader.begin(header);
      if (into != nullptr) copyOut(incoming_, tail_ + sizeof header, into, header.bytes);
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
  // Of a receive this is not the device's status, but the virtual queue pair's.
  if (wc.wr_id == kNoticeReceive && wc.status == IBV_WC_BAD_RESP_ERR) {
    return distrust("it sent a notice that cannot come");
  }
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

void IbLink::distrust(const std::string& why) {
  if (hasFailed()) return;
  broken(why);
  isForged_ = true;
}

void IbLink::stop() {
  broken("it was closed");
  qp_->fail();
}

void IbLink::close() {
  stop();
  urgent_.clear();
}

std::string IbLink::handBack(uint64_t bytes, Link::Frames& frames, const Written& written) {
  if (bytes < released_ || bytes > head_) return "it has read other frames than it was sent";
  // What the device has done is done, and so is what was written before a frame that was read.
  std::erase_if(placing_, [&](const Placing& each) {
    const bool isDone = completed_ >= each.last || each.position < bytes;
    if (isDone && each.owner != nullptr) written(each.owner, each.bytes);
    return isDone || each.owner == nullptr;
  });
  const auto handBackMemory = [&](Placing& each, std::vector<std::byte> payload) {
    Link::Outgoing frame{each.header, each.data, each.owner, std::move(payload)};
    frame.placement = std::move(each.placement);
    frame.placedBytes = each.bytes;
    frames.push_back(std::move(frame));
  };
  const auto handBackOneSided = [&](uint64_t before) {
    while (!placing_.empty() && placing_.front().isOneSided() &&
           placing_.front().position <= before) {
      handBackMemory(placing_.front(), {});
      placing_.pop_front();
    }
  };
  for (uint64_t at = bytes; at < head_;) {
    handBackOneSided(at);
    FrameHeader header;
    copyOut(outgoing_, at, &header, sizeof header);
    if (head_ - at < sizeof header || whyInvalid(header) ||
        header.bytes > head_ - at - sizeof header) {
      return "it has read a part of a frame";
    }
    std::vector<std::byte> payload(header.bytes);
    copyOut(outgoing_, at + sizeof header, payload.data(), header.bytes);
    if (!placing_.empty() && !placing_.front().isOneSided() && placing_.front().position == at) {
      handBackMemory(placing_.front(), std::move(payload));
      placing_.pop_front();
    } else {
      frames.push_back({header, nullptr, nullptr, std::move(payload)});
    }
    at += sizeof header + header.bytes;
  }
  handBackOneSided(head_);
  placing_.clear();
  frames.insert(frames.end(), std::make_move_iterator(urgent_.begin()),
                std::make_move_iterator(urgent_.end()));
  urgent_.clear();
  return {};
}

}  // namespace ctran
