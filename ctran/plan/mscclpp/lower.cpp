#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "ctran/base/error.h"
#include "ctran/plan/mscclpp/counters.h"
#include "ctran/plan/mscclpp/cursor.h"
#include "ctran/plan/mscclpp/orders.h"
#include "ctran/plan/mscclpp/parts.h"
#include "ctran/plan/mscclpp/program.h"
#include "ctran/plan/mscclpp/scatter.h"
#include "ctran/plan/trim.h"

namespace ctran::plan::mscclpp {
namespace {

class Lowering : private Cursor {
 public:
  Lowering(const Program& program, int iterations, Choices* choices)
      : Cursor(program, iterations), choices_(choices) {
    plan_.name = program.name;
    plan_.ranks = static_cast<int>(program.gpus.size());
    plan_.depth = program.doubleScratch ? 2 : 1;
  }

  Lowered run() {
    nameCollective();
    forEach([&](const Operation& op) {
      factor_ = small(std::lcm(int64_t{factor_}, int64_t{op.groupSize} * iterations_));
    });
    plan_.chunks = small(int64_t{chunksPerBlock()} * factor_);
    size_t lanes = 1;
    for (const Gpu& gpu : program_.gpus) {
      plan_.scratch = std::max(plan_.scratch, small(int64_t{gpu.scratchChunks} * factor_));
      lanes = std::max(lanes, gpu.threadblocks.size());
    }
    plan_.programs.assign(plan_.ranks, std::vector<Lane>(lanes));
    origins_.assign(plan_.ranks, std::vector<std::vector<Origin>>(lanes));
    forEach([&](const Operation& op) { findUsers(op); });
    forEach([&](const Operation& op) { lowerOperation(op); });
    settlePackets();
    settleMixtures();
    settleCounts();
    settleParts(plan_);
    dropEmptySteps();
    if (scattersInPlace_) scatterInPlace();
    joinLanes();
    for (const auto& [rank, first] : copies_) bringResult(rank, first);
    checkSteps();
    return {withSumsInRankOrder(plan_), std::move(origins_), factor_, unordered_, mayStick_};
  }

 private:
  using Lanes = std::set<LaneId>;
  using Slot = std::pair<int, int>;  // rank, chunk of scratch
  /// A step that reads, or writes, packets, except in the first `raw` of its places.
  struct PacketUse : Use {
    size_t raw = 0;
  };
  struct PacketStep {
    Use use;
    std::set<Slot> packets, raw;  // of scratch: where it has packets, and where data
  };

  /// A number of chunks; more than a plan has are refused.
  int small(int64_t chunks) const {
    constexpr int64_t kMost = 1 << 20;
    if (chunks > kMost) failAsWrong("a plan has no " + std::to_string(chunks) + " chunks");
    return static_cast<int>(chunks);
  }

  int chunksPerBlock() const {
    if (plan_.open) return 1;
    const int chunks = program_.gpus[0].outputChunks;
    const bool isMany =
        plan_.kind == CollectiveKind::AllGather || plan_.kind == CollectiveKind::AllToAll;
    const int perBlock = isMany ? chunks / plan_.ranks : chunks;
    if (perBlock < 1) failAsWrong("the output has too few chunks");
    return perBlock;
  }

  /// Of these MSCCL++ says no result: each chunk is a block, which may go anywhere.
  Plan::Open openBuffers() const {
    Plan::Open open;
    for (const Gpu& gpu : program_.gpus) {
      open.inputs = std::max(open.inputs, gpu.inputChunks);
      open.outputs = std::max(open.outputs, gpu.outputChunks);
    }
    if (open.inputs < 1 && open.outputs < 1) failAsWrong("there is neither input nor output");
    return open;
  }

  void nameCollective() {
    const std::string& name = program_.collective;
    if (name == "allreduce") {
      plan_.kind = CollectiveKind::AllReduce;
    } else if (name == "allgather") {
      plan_.kind = CollectiveKind::AllGather;
    } else if (name == "reducescatter") {
      plan_.kind = CollectiveKind::ReduceScatter;
    } else if (name == "alltoall") {
      plan_.kind = CollectiveKind::AllToAll;
    } else if (name == "sendrecv" || name == "test") {
      plan_.kind = CollectiveKind::AllReduce;
      plan_.open = openBuffers();
    } else {
      fail("the collective " + name);
    }
    scattersInPlace_ = program_.inPlace && plan_.kind == CollectiveKind::ReduceScatter;
    plan_.inPlace = program_.inPlace && !scattersInPlace_;
  }

  static bool signals(const std::string& name) {
    return name == "signal" || name == "rlxsignal" || name == "pws" || name == "pwsf";
  }
  static bool waits(const std::string& name) { return name == "wait" || name == "rlxwait"; }

  /// Which lane signals a channel, and which waits on it.
  void findUsers(const Operation& op) {
    if (signals(op.name)) {
      for (const End& end : endsOf(op)) signallers_[end].insert(at_);
    } else if (waits(op.name)) {
      for (const End& end : endsOf(op)) waiters_[end].insert(at_);
    } else if (op.name == "barrier") {
      barriers_[{at_.rank, op.barrierId}].insert(at_);
    } else if (op.name == "sem_release" || op.name == "sem_acquire") {
      auto& users = op.name == "sem_release" ? releasers_ : acquirers_;
      for (const int id : op.semaphoreIds) users[{at_.rank, id}].insert(at_);
    }
  }

  int channelOf(LaneId from, LaneId to, const std::string& use, int credits = 0) {
    const auto [at, added] =
        channels_.try_emplace({from, to, use}, static_cast<int>(plan_.channels.size()));
    if (added) plan_.channels.push_back({from, to, credits});
    return at->second;
  }

  /// Adds a signal, or a wait, to a step that comes next. With one lane at each end it is one on a
  /// channel; else what it means is found when all are known.
  void addUse(Step& step, bool isSignal, const Lanes& from, const Lanes& to,
              const std::string& what, int credits) {
    if (from.size() == 1 && to.size() == 1 && from != to) {
      const int channel = channelOf(*from.begin(), *to.begin(), what, credits);
      if (isSignal) {
        step.signals.push_back(channel);
      } else {
        step.waits.push_back({channel, 1});
      }
      return;
    }
    Counter& counter = counters_[what];
    counter.what = what;
    counter.credits = credits;
    (isSignal ? counter.signals : counter.waits).push_back({at_, lane().size(), origin_});
  }

  void addUse(Step& step, bool isSignal, const End& from) {
    const End to = otherEnd(from);
    const auto waiters = waiters_.find(to);
    const auto signallers = signallers_.find(from);
    if (waiters == waiters_.end() || signallers == signallers_.end()) {
      failAsWrong("nobody is at the other end of a channel of ranks " + std::to_string(from.rank) +
                  " and " + std::to_string(to.rank));
    }
    addUse(step, isSignal, signallers->second, waiters->second,
           from.type + " channel " + std::to_string(from.index) + " of rank " +
               std::to_string(from.rank),
           0);
  }

  Lane& lane() { return plan_.programs[at_.rank][at_.lane]; }

  void addStep(Step step) {
    lane().push_back(std::move(step));
    origins_[at_.rank][at_.lane].push_back(origin_);
  }

  int shareOf(const Chunk& chunk, const Operation& op) const {
    return small(int64_t{chunk.size} * factor_ / iterations_ / op.groupSize);
  }

  /// Of a buffer of a rank, where the chunks begin that this thread block moves now.
  Place placeIn(int rank, const std::string& type, const Chunk& chunk, const Operation& op) const {
    const int share = shareOf(chunk, op);
    const int64_t place = iteration_ * op.groupSize + op.groupIndex;
    int index = small(int64_t{chunk.index} * factor_ + place * share);
    if (type == "s") return {rank, Buffer::Scratch, index};
    if (type != "i" && type != "o") failAsWrong("'" + type + "' is no buffer");
    if (scattersInPlace_ && type == "o") return {rank, Buffer::Input, rank * plan_.chunks + index};
    if (type == "o") return {rank, Buffer::Output, index};
    if (!plan_.inPlace) return {rank, Buffer::Input, index};
    if (plan_.kind == CollectiveKind::AllGather) index += rank * plan_.chunks;
    return {rank, Buffer::Output, index};
  }

  void addPlaces(const Chunk& chunk, const Operation& op, std::vector<Place>& places) const {
    if (chunk.switchId) {
      const int index = lookUp(block().channels, "switch", *chunk.switchId);
      const auto& switches = program_.gpus[at_.rank].switches;
      if (index < 0 || index >= static_cast<int>(switches.size())) {
        failAsWrong("there is no switch channel " + std::to_string(index));
      }
      for (const int rank : switches[index].ranks) {
        places.push_back(placeIn(rank, switches[index].type, chunk, op));
      }
    } else if (chunk.bufferId) {
      const int index = lookUp(block().remoteBufferRefs, op.channelType, *chunk.bufferId);
      const auto& buffers = program_.gpus[at_.rank].remoteBuffers;
      if (index < 0 || index >= static_cast<int>(buffers.size())) {
        failAsWrong("there is no remote buffer " + std::to_string(index));
      }
      places.push_back(placeIn(buffers[index].rank, buffers[index].type, chunk, op));
    } else {
      places.push_back(placeIn(at_.rank, chunk.type.value_or(""), chunk, op));
    }
  }

  /// Chunks of users' buffers that belong together are the same part of a block, as parts may
  /// differ in size.
  void checkPart(const Step& step) const {
    const Place* first = nullptr;
    for (const auto* places : {&step.from, &step.to}) {
      for (const Place& place : *places) {
        if (place.buffer == Buffer::Scratch) continue;
        if (first == nullptr) first = &place;
        if (first->index % plan_.chunks == place.index % plan_.chunks) continue;
        failAsWrong("chunk " + std::to_string(first->index / factor_) + " and chunk " +
                    std::to_string(place.index / factor_) +
                    " are different parts of the data, of which one may be larger");
      }
    }
  }

  /// A packet is twice as large as its data: a user's buffer has no place for it. A port copies
  /// bytes as they are, so what it sends as packets has to be packets.
  void checkPackets(const std::vector<Place>& places, size_t first) const {
    for (size_t i = first; i < places.size(); ++i) {
      if (places[i].buffer == Buffer::Scratch) continue;
      failAsWrong("it has packets in the " + std::string(nameOf(places[i].buffer)) + " of rank " +
                  std::to_string(places[i].rank) + ", but they lie in scratch only");
    }
  }

  /// A move whose part is settled later.
  void addMove(const Operation& op, const std::vector<Chunk>& to, const std::vector<Chunk>& from,
               bool readsPackets, bool writesPackets) {
    if (to.empty() || from.empty()) failAsWrong("it lacks sources or destinations");
    Step step;
    step.count = shareOf(from[0], op);
    for (const auto* chunks : {&from, &to}) {
      for (const Chunk& chunk : *chunks) {
        if (chunk.size == from[0].size) continue;
        failAsWrong("it has " + std::to_string(from[0].size) + " and " +
                    std::to_string(chunk.size) + " chunks at a time");
      }
    }
    for (const Chunk& chunk : from) addPlaces(chunk, op, step.from);
    for (const Chunk& chunk : to) addPlaces(chunk, op, step.to);
    for (const Place& place : step.to) {
      if (place.buffer == Buffer::Input && !scattersInPlace_) {
        failAsWrong("it writes to the input of rank " + std::to_string(place.rank) +
                    ", and the collective is not in place");
      }
      step.store |= place.rank != at_.rank;
    }
    checkPart(step);
    const size_t data = op.name.starts_with("re") ? 1 : 0;  // of reductions the first is no packet
    if (readsPackets) checkPackets(step.from, data);
    if (writesPackets) checkPackets(step.to, data);
    const bool forwards = op.name == "ppkt" && op.channelType == "port";
    if (forwards) checkPackets(step.from, 0);
    step.packet = readsPackets || writesPackets;
    if (step.packet) {
      notePackets(step, readsPackets || forwards ? data : step.from.size(),
                  writesPackets ? data : step.to.size());
    }
    // A port copies when it gets to it; packets say by themselves when they are there.
    step.store &= op.channelType != "port" && !step.packet;
    const size_t index = lane().size();
    addStep(std::move(step));
    if (readsPackets) packetReads_.push_back({{at_, index, origin_}, data});
    if (writesPackets) packetWrites_.push_back({{at_, index, origin_}, data});
  }

  /// Of a step that comes next: of its sources and destinations, so many are data.
  void notePackets(const Step& step, size_t rawFrom, size_t rawTo) {
    PacketStep& noted = packetSteps_.emplace_back();
    noted.use = {at_, lane().size(), origin_};
    const auto note = [&](std::span<const Place> places, size_t raw) {
      forSlots(places.first(raw), step.count, [&](const Slot& slot) { noted.raw.insert(slot); });
      forSlots(places.subspan(raw), step.count,
               [&](const Slot& slot) { noted.packets.insert(slot); });
    };
    note(step.from, rawFrom);
    note(step.to, rawTo);
  }

  std::string textOf(const Slot& slot) const {
    return "scratch[" + std::to_string(slot.second / factor_) + "] of rank " +
           std::to_string(slot.first);
  }

  /// The chunks of scratch among those places.
  template <class Function>
  static void forSlots(std::span<const Place> places, int count, const Function& function) {
    for (const Place& place : places) {
      for (int i = 0; i < count && place.buffer == Buffer::Scratch; ++i) {
        function(Slot(place.rank, place.index + i));
      }
    }
  }

  /// Several moves in one operation: the first source to the first destination, and so on.
  void addPairs(const Operation& op, bool readsPackets = false, bool writesPackets = false) {
    if (op.src.size() != op.dst.size()) {
      failAsWrong("it has " + std::to_string(op.src.size()) + " sources for " +
                  std::to_string(op.dst.size()) + " destinations");
    }
    for (size_t i = 0; i < op.src.size(); ++i) {
      addMove(op, {op.dst[i]}, {op.src[i]}, readsPackets, writesPackets);
    }
  }

  void lowerOperation(const Operation& op) {
    const std::string& name = op.name;
    if (name == "nop" || name == "flush") return;  // steps of a lane are in order; puts too
    if (signals(name)) {
      if (name != "signal" && name != "rlxsignal") addPairs(op);
      Step step;
      for (const End& end : endsOf(op)) addUse(step, true, end);
      addStep(std::move(step));
    } else if (waits(name)) {
      Step step;
      for (const End& end : endsOf(op)) addUse(step, false, otherEnd(end));
      addStep(std::move(step));
    } else if (name == "barrier") {
      lowerBarrier(op);
    } else if (name == "sem_release" || name == "sem_acquire") {
      lowerSemaphore(op);
    } else if (name == "put" || name == "get" || name == "copy" || name == "gstore") {
      addPairs(op);
    } else if (name == "ppkt" || name == "cpkt" || name == "gstorepkt") {
      addPairs(op, false, true);
    } else if (name == "upkt") {
      addPairs(op, true);
    } else if (name == "rppkt") {
      addMove(op, op.dst, op.src, true, true);
    } else if (name == "re" || name == "res" || name == "rre" || name == "rres" || name == "glre" ||
               name == "glres") {
      addMove(op, op.dst, op.src, false, false);
    } else if (name == "repkt" || name == "respkt" || name == "recpkt" || name == "recspkt") {
      addMove(op, op.dst, op.src, true, name != "repkt");
    } else {
      failAsWrong("there is no such operation");
    }
  }

  void lowerBarrier(const Operation& op) {
    const auto& lanes = barriers_[{at_.rank, op.barrierId}];
    if (op.barrierBlocks != 0 && static_cast<int>(lanes.size()) != op.barrierBlocks) {
      failAsWrong(std::to_string(lanes.size()) + " thread blocks use it, not " +
                  std::to_string(op.barrierBlocks));
    }
    addBarrier(lanes, "barrier " + std::to_string(op.barrierId));
  }

  /// Everybody tells everybody, then hears from everybody. Of many lanes, all tell the first, which
  /// tells all: from each lane to each would be too many channels.
  void addBarrier(const Lanes& lanes, const std::string& use) {
    if (lanes.size() < 2) return;
    const bool areMany = lanes.size() > 8, isFirst = at_ == *lanes.begin();
    Step tell, hear;
    for (const LaneId& other : lanes) {
      if (other == at_ || (areMany && !isFirst && other != *lanes.begin())) continue;
      tell.signals.push_back(channelOf(at_, other, use));
      hear.waits.push_back({channelOf(other, at_, use), 1});
    }
    if (areMany && isFirst) std::swap(tell, hear);
    addStep(std::move(tell));
    addStep(std::move(hear));
  }

  void lowerSemaphore(const Operation& op) {
    Step step;
    for (const int id : op.semaphoreIds) {
      const std::pair key{at_.rank, id};
      if (!releasers_.contains(key) || !acquirers_.contains(key)) {
        failAsWrong("semaphore " + std::to_string(id) + " is not both acquired and released");
      }
      const auto& initial = program_.gpus[at_.rank].semaphores;
      if (id < 0 || id >= static_cast<int>(initial.size())) {
        failAsWrong("there is no semaphore " + std::to_string(id));
      }
      addUse(step, op.name == "sem_release", releasers_.at(key), acquirers_.at(key),
             "semaphore " + std::to_string(id) + " of rank " + std::to_string(at_.rank),
             initial[id]);
    }
    addStep(std::move(step));
  }

  /// Every write of packets gets a channel to every lane that reads them.
  void settlePackets() {
    std::map<Slot, const Use*> writers;
    for (const PacketUse& write : packetWrites_) {
      goTo(write);
      const Step& step = plan_.lane(write.lane)[write.step];
      forSlots(std::span(step.to).subspan(write.raw), step.count, [&](const Slot& slot) {
        if (writers.try_emplace(slot, &write).second) return;
        failAsWrong(textOf(slot) +
                    " gets packets twice in one execution, which is all that they tell apart");
      });
    }
    std::set<std::tuple<LaneId, size_t, LaneId>> announced;
    for (const PacketUse& read : packetReads_) {
      goTo(read);
      Step& step = plan_.lane(read.lane)[read.step];
      std::set<const Use*> awaited;
      forSlots(std::span(step.from).subspan(read.raw), step.count, [&](const Slot& slot) {
        const auto writer = writers.find(slot);
        if (writer == writers.end()) failAsWrong("nobody writes packets to " + textOf(slot));
        awaited.insert(writer->second);
      });
      for (const Use* write : awaited) {
        if (write->lane == read.lane) continue;  // in order anyway
        if (!announced.emplace(write->lane, write->step, read.lane).second) continue;
        const int channel =
            channelOf(write->lane, read.lane, "packets " + std::to_string(write->step));
        plan_.lane(write->lane)[write->step].signals.push_back(channel);
        step.waits.push_back({channel, 1});
      }
    }
    for (const PacketUse& write : packetWrites_) {
      goTo(write);
      const Step& step = plan_.lane(write.lane)[write.step];
      const auto remote = [&](const Place& place) { return place.rank != at_.rank; };
      if (step.signals.empty() && std::any_of(step.to.begin() + write.raw, step.to.end(), remote)) {
        failAsWrong("nobody reads the packets");
      }
    }
    leave();
  }

  /// A step takes all that it has in scratch as packets, or nothing. Where one has both there, its
  /// packets become data: they have their channels, as all packets have. So do others that come to
  /// the same places.
  void settleMixtures() {
    std::set<Slot> plain;
    bool more = true;
    while (more) {
      more = false;
      for (PacketStep& noted : packetSteps_) {
        Step& step = plan_.lane(noted.use.lane)[noted.use.step];
        const bool meets = std::any_of(noted.packets.begin(), noted.packets.end(),
                                       [&](const Slot& slot) { return plain.contains(slot); });
        if (!step.packet || (noted.raw.empty() && !meets)) continue;
        step.packet = false;
        plain.insert(noted.packets.begin(), noted.packets.end());
        more = true;
      }
    }
    if (!plain.empty()) checkPlain(plain);
  }

  /// That nobody takes packets as data where the verifier does not tell them apart.
  void checkPlain(const std::set<Slot>& plain) {
    const auto check = [&](const Use& use, const Slot& slot) {
      if (!plain.contains(slot)) return;
      goTo(use);
      failAsWrong("it has data in " + textOf(slot) + ", which gets packets");
    };
    std::set<std::pair<LaneId, size_t>> packetSteps;
    for (const PacketStep& noted : packetSteps_) {
      packetSteps.emplace(noted.use.lane, noted.use.step);
      for (const Slot& slot : noted.raw) check(noted.use, slot);
    }
    for (int r = 0; r < plan_.ranks; ++r) {
      for (int l = 0; l < static_cast<int>(plan_.programs[r].size()); ++l) {
        const Lane& steps = plan_.programs[r][l];
        for (size_t s = 0; s < steps.size(); ++s) {
          if (packetSteps.contains({{r, l}, s})) continue;
          const Use use{{r, l}, s, origins_[r][l][s]};
          for (const auto* places : {&steps[s].from, &steps[s].to}) {
            forSlots(*places, steps[s].count, [&](const Slot& slot) { check(use, slot); });
          }
        }
      }
    }
    leave();
  }

  void settleCounts() {
    std::vector<Counter> counters;
    for (const auto& [what, counter] : counters_) {
      const auto& [signals, waits] = std::tie(counter.signals, counter.waits);
      if (signals.size() != waits.size()) {
        goTo((signals.size() > waits.size() ? signals
                                            : waits)[std::min(signals.size(), waits.size())]);
        failAsWrong(what + " is signalled " + std::to_string(signals.size()) +
                    " times in an execution, and waited on " + std::to_string(waits.size()));
      }
      counters.push_back(counter);
    }
    const Counted counted = settleCounters(plan_, counters);
    mayStick_ = counted.stuck && counted.unordered;
    if (counted.unordered) {
      unordered_ = std::pair(counted.unordered->lane, counted.unordered->origin);
    } else if (counted.stuck) {
      goTo(*counted.stuck);
      failAsWrong("it waits for ever");
    }
    if (choices_ != nullptr) {
      if (const auto stuck = settleOrder(plan_, counters, counted.contended, *choices_)) {
        goTo(*stuck);
        failAsWrong("it waits for ever, if others that wait for the same come first");
      }
    }
    leave();
  }

  /// Of a reduce_scatter in place: a rank's own block of the input becomes its output. In a plan
  /// these are two, which works in place as well: what has been written is in the output. Where it
  /// cannot be told what was written before, or other blocks are written, too, the rank works on a
  /// copy of its input in scratch.
  void scatterInPlace() {
    const int first = plan_.scratch;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      if (divideOwnBlock(plan_, rank)) continue;
      copies_[rank] = first;
      plan_.scratch = first + plan_.ranks * plan_.chunks;
      replaceInput(plan_, rank, first);
      at_ = {rank, 0};
      Step copy;
      copy.from = {{rank, Buffer::Input, 0}};
      copy.to = {{rank, Buffer::Scratch, first}};
      copy.count = plan_.ranks * plan_.chunks;
      for (int l = 1; l < static_cast<int>(plan_.programs[rank].size()); ++l) {
        if (plan_.programs[rank][l].empty()) continue;
        copy.signals.push_back(channelOf(at_, {rank, l}, "begin"));
        Step begin;
        begin.waits = {{copy.signals.back(), 1}};
        addFirst({rank, l}, std::move(begin));
      }
      addFirst(at_, std::move(copy));
    }
  }

  void addFirst(LaneId id, Step step) {
    Lane& steps = plan_.lane(id);
    steps.insert(steps.begin(), std::move(step));
    auto& origins = origins_[id.rank][id.lane];
    origins.insert(origins.begin(), Origin{});
  }

  /// The rank's own block of its copy, when all its lanes have ended.
  void bringResult(int rank, int first) {
    at_ = {rank, 0};
    Step copy;
    copy.from = {{rank, Buffer::Scratch, first + rank * plan_.chunks}};
    copy.to = {{rank, Buffer::Output, 0}};
    copy.count = plan_.chunks;
    addStep(std::move(copy));
  }

  /// What was known before is not waited for.
  void dropEmptySteps() {
    for (int r = 0; r < plan_.ranks; ++r) {
      for (size_t l = 0; l < plan_.programs[r].size(); ++l) {
        Lane lane;
        std::vector<Origin> origins;
        for (size_t s = 0; s < plan_.programs[r][l].size(); ++s) {
          Step& step = plan_.programs[r][l][s];
          if (!step.moves() && step.waits.empty() && step.signals.empty()) continue;
          lane.push_back(std::move(step));
          origins.push_back(origins_[r][l][s]);
        }
        plan_.programs[r][l] = std::move(lane);
        origins_[r][l] = std::move(origins);
      }
    }
  }

  /// That the plan is well-formed, with the operation that is not.
  void checkSteps() {
    try {
      check(plan_);
    } catch (const StepError& error) {
      const Origin origin = origins_[error.at.rank][error.at.lane][error.step];
      if (origin.op >= 0) goTo({error.at, 0, origin});
      failAsWrong(error.why);
    } catch (const Error& error) {
      failAsWrong(error.what());
    }
  }

  /// A rank's next execution begins when all its lanes have ended this one.
  void joinLanes() {
    for (int r = 0; r < plan_.ranks; ++r) {
      Lanes lanes;
      for (int l = 0; l < static_cast<int>(plan_.programs[r].size()); ++l) {
        if (!plan_.programs[r][l].empty()) lanes.insert({r, l});
      }
      for (const LaneId& id : lanes) {
        at_ = id;
        addBarrier(lanes, "end");
      }
    }
  }

  Choices* const choices_;
  Plan plan_;
  bool scattersInPlace_ = false;
  std::map<int, int> copies_;  ///< of inputs, by rank: the chunk of scratch where they begin
  int factor_ = 1;             // of our chunks in one of theirs
  std::vector<std::vector<std::vector<Origin>>> origins_;
  std::map<End, Lanes> signallers_, waiters_;
  std::map<std::pair<int, int>, Lanes> barriers_;
  std::map<std::pair<int, int>, Lanes> releasers_, acquirers_;
  std::map<std::string, Counter> counters_;
  std::optional<std::pair<LaneId, Origin>> unordered_;
  bool mayStick_ = false;
  std::map<std::tuple<LaneId, LaneId, std::string>, int> channels_;
  std::vector<PacketUse> packetWrites_, packetReads_;
  std::vector<PacketStep> packetSteps_;
};

}  // namespace

Lowered lower(const Program& program, int iterations, Choices* choices) {
  return Lowering(program, iterations, choices).run();
}

}  // namespace ctran::plan::mscclpp
