#include "ctran/plan/builder.h"

#include <algorithm>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

// Uses of channels from here on belong to links, and to shared buffers.
constexpr int kLinkUse = 1 << 20;
constexpr int kSharedBufferUse = 3 * kLinkUse;

}  // namespace

Link::Link(Builder& builder, LaneId from, LaneId to, int chunks)
    : builder_(builder), from_(from), to_(to), chunks_(chunks) {}

void Link::note(const Step& step, bool inTo, int message) {
  const LaneId lane = inTo ? from_ : to_;
  const Lane& steps = builder_.plan_.lane(lane);
  const size_t index = &step - steps.data();
  uses_.push_back({lane, index, inTo, (inTo ? step.to.size() : step.from.size()), message});
}

void Link::put(Step& step) {
  note(step, true, sent_++);
  step.waits.push_back({credit_, 1});
  step.to.push_back({to_.rank, Buffer::Scratch, 0});
  step.signals.push_back(data_);
}

Place Link::arrive(Step& step) {
  note(step, false, received_++);
  step.waits.push_back({data_, 1});
  const Place slot{to_.rank, Buffer::Scratch, 0};
  step.from.push_back(slot);
  return slot;
}

void Link::release(Step& step) const { step.signals.push_back(credit_); }

/// Slots: as few as the messages of an execution are a multiple of, but two if there are two; so
/// that a message has the same slot in every execution and the slots are used in turns.
void Link::settle() {
  int slots = 1;
  if (sent_ > 1) {
    slots = 2;
    while (sent_ % slots != 0) ++slots;
  }
  const int first = builder_.allocate(to_.rank, slots * chunks_).index;
  for (const Use& use : uses_) {
    Step& step = builder_.plan_.lane(use.lane)[use.step];
    (use.inTo ? step.to : step.from)[use.place].index = first + use.message % slots * chunks_;
  }
  const int ahead = slots == sent_ ? builder_.plan_.depth : 1;
  builder_.plan_.channels[credit_].credits = slots * ahead;
}

SharedBuffer::SharedBuffer(Builder& builder, LaneId owner, std::vector<LaneId> readers, int chunks)
    : owner_(owner),
      readers_(std::move(readers)),
      place_(builder.allocate(owner.rank, chunks)),
      read_(readers_.size(), false) {
  const int use = kSharedBufferUse + static_cast<int>(builder.sharedBuffers_.size());
  for (const LaneId reader : readers_) {
    data_.push_back(builder.channel(owner, reader, 0, use));
    credit_.push_back(builder.channel(reader, owner, builder.plan().depth, use));
  }
}

void SharedBuffer::write(Step& step, int offset) {
  if (!written_) {
    for (const int credit : credit_) step.waits.push_back({credit, 1});
  }
  written_ = true;
  step.to.push_back({owner_.rank, Buffer::Scratch, place_.index + offset});
}

void SharedBuffer::publish(Step& step) const {
  step.signals.insert(step.signals.end(), data_.begin(), data_.end());
}

size_t SharedBuffer::indexOf(LaneId reader) const {
  return std::find(readers_.begin(), readers_.end(), reader) - readers_.begin();
}

Place SharedBuffer::read(Step& step, LaneId reader, int offset) {
  const size_t index = indexOf(reader);
  if (!read_[index]) step.waits.push_back({data_[index], 1});
  read_[index] = true;
  const Place place{owner_.rank, Buffer::Scratch, place_.index + offset};
  step.from.push_back(place);
  return place;
}

void SharedBuffer::release(Step& step, LaneId reader) const {
  step.signals.push_back(credit_[indexOf(reader)]);
}

Builder::Builder(std::string name, CollectiveKind kind, int ranks, int chunks) {
  if (ranks < 1 || chunks < 1) {
    throw Error(ErrorKind::InvalidArgument, "a plan needs at least one rank and one chunk, not " +
                                                std::to_string(ranks) + " and " +
                                                std::to_string(chunks));
  }
  plan_.name = std::move(name);
  plan_.kind = kind;
  plan_.ranks = ranks;
  plan_.chunks = chunks;
  plan_.inPlace = kind == CollectiveKind::Broadcast;
  plan_.programs.resize(ranks);
  used_.resize(ranks, 0);
}

Builder::~Builder() = default;

Step& Builder::step(LaneId lane) {
  auto& lanes = plan_.programs.at(lane.rank);
  if (static_cast<int>(lanes.size()) <= lane.lane) lanes.resize(lane.lane + 1);
  return lanes[lane.lane].emplace_back();
}

void Builder::move(Step& step, std::vector<Place> to, std::vector<Place> from, int count,
                   int part) const {
  for (const auto* list : {&to, &from}) {
    for (const Place& place : *list) {
      if (part < 0 && place.buffer != Buffer::Scratch) part = place.index % plan_.chunks;
    }
  }
  step.to.insert(step.to.end(), to.begin(), to.end());
  step.from.insert(step.from.end(), from.begin(), from.end());
  step.count = count;
  step.part = std::max(part, 0);
}

void Builder::copy(LaneId lane, const Place& to, const Place& from, int count, int part) {
  if (to == from) return;
  move(step(lane), {to}, {from}, count, part);
}

int Builder::channel(LaneId from, LaneId to, int credits, int use) {
  const auto [at, added] =
      channels_.try_emplace({from, to, use}, static_cast<int>(plan_.channels.size()));
  if (added) plan_.channels.push_back({from, to, credits});
  return at->second;
}

Link& Builder::link(LaneId from, LaneId to, int chunks, int use) {
  auto& link = links_[{from, to, use}];
  if (!link) {
    link = std::make_unique<Link>(*this, from, to, chunks);
    link->data_ = channel(from, to, 0, kLinkUse + use);
    link->credit_ = channel(to, from, 0, 2 * kLinkUse + use);
    linkOrder_.push_back(link.get());
  }
  return *link;
}

SharedBuffer& Builder::sharedBuffer(LaneId owner, std::vector<LaneId> readers, int chunks) {
  sharedBuffers_.push_back(
      std::make_unique<SharedBuffer>(*this, owner, std::move(readers), chunks));
  return *sharedBuffers_.back();
}

void Builder::barrier(int rank) {
  const int lanes = static_cast<int>(plan_.programs.at(rank).size());
  for (int l = 0; l < lanes; ++l) {
    std::vector<int> signals;
    for (int other = 0; other < lanes; ++other) {
      if (other != l) signals.push_back(channel({rank, l}, {rank, other}));
    }
    if (!signals.empty()) step({rank, l}).signals = std::move(signals);
  }
  for (int l = 0; l < lanes; ++l) {
    std::vector<Wait> waits;
    for (int other = 0; other < lanes; ++other) {
      if (other != l) waits.push_back({channel({rank, other}, {rank, l}), 1});
    }
    if (!waits.empty()) step({rank, l}).waits = std::move(waits);
  }
}

Place Builder::allocate(int rank, int chunks) {
  const int first = used_.at(rank);
  used_[rank] += chunks;
  return scratch(rank, first);
}

Plan Builder::finish() {
  for (Link* link : linkOrder_) link->settle();
  linkOrder_.clear();
  plan_.scratch = *std::max_element(used_.begin(), used_.end());
  size_t lanes = 1;
  for (const auto& program : plan_.programs) lanes = std::max(lanes, program.size());
  for (auto& program : plan_.programs) program.resize(lanes);
  check(plan_);
  return plan_;
}

}  // namespace ctran::plan
