#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "ctran/base/error.h"
#include "ctran/plan/mscclpp/program.h"

namespace ctran::plan::mscclpp {
namespace {

/// A connection, as one of its ends knows it: number `index` of its channels of that type.
struct End {
  int rank;
  std::string type;
  int index;
  auto operator<=>(const End&) const = default;
};

class Lowering {
 public:
  explicit Lowering(const Program& program) : program_(program) {
    plan_.name = program.name;
    plan_.ranks = static_cast<int>(program.gpus.size());
    plan_.depth = program.doubleScratch ? 2 : 1;
  }

  Plan run() {
    nameCollective();
    forEach([&](const Operation& op) { factor_ = std::lcm(factor_, op.groupSize); });
    const int perBlock =
        plan_.kind == CollectiveKind::AllGather || plan_.kind == CollectiveKind::AllToAll
            ? program_.gpus[0].outputChunks / plan_.ranks
            : program_.gpus[0].outputChunks;
    if (perBlock < 1) fail("the output has too few chunks");
    plan_.chunks = perBlock * factor_;
    size_t lanes = 1;
    for (const Gpu& gpu : program_.gpus) {
      plan_.scratch = std::max(plan_.scratch, gpu.scratchChunks * factor_);
      lanes = std::max(lanes, gpu.threadblocks.size());
    }
    plan_.programs.assign(plan_.ranks, std::vector<Lane>(lanes));
    forEach([&](const Operation& op) { findUsers(op); });
    forEach([&](const Operation& op) { lowerOperation(op); });
    settlePackets();
    settleParts();
    joinLanes();
    check(plan_);
    return std::move(plan_);
  }

 private:
  struct PacketWrite {
    LaneId lane;
    size_t step;
    int place;  // of the step's destinations
    bool used = false;
  };
  using Slot = std::pair<int, int>;  // rank, chunk of scratch

  [[noreturn]] void fail(const std::string& why, ErrorKind kind = ErrorKind::Unsupported) const {
    std::string where = "program '" + program_.name + "'";
    if (op_ != nullptr) {
      where += ", rank " + std::to_string(at_.rank) + ", thread block " +
               std::to_string(program_.gpus[at_.rank].threadblocks[at_.lane].id) + ", '" +
               op_->name + "'";
    }
    throw Error(kind, where + ": " + why);
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
    } else {
      fail("there are no plans for " + name);
    }
    if (program_.inPlace && plan_.kind == CollectiveKind::ReduceScatter) {
      fail("a plan of a reduce_scatter cannot be in place");
    }
    plan_.inPlace = program_.inPlace;
  }

  /// All operations, those of pipelines too, with `at_` and `op_` saying where.
  template <class Function>
  void forEach(Function function) {
    for (int r = 0; r < plan_.ranks; ++r) {
      const auto& blocks = program_.gpus[r].threadblocks;
      for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
        at_ = {r, b};
        for (const Operation& op : blocks[b].ops) visit(op, function);
      }
    }
    op_ = nullptr;
  }
  template <class Function>
  void visit(const Operation& op, Function& function) {
    op_ = &op;
    if (op.name == "pipeline") {
      for (const Operation& inner : op.ops) visit(inner, function);
    } else {
      function(op);
    }
  }

  const ThreadBlock& block() const { return program_.gpus[at_.rank].threadblocks[at_.lane]; }

  int lookUp(const std::vector<ByType>& lists, const std::string& type, int index) const {
    for (const ByType& list : lists) {
      if (list.type != type) continue;
      if (index >= 0 && index < static_cast<int>(list.numbers.size())) return list.numbers[index];
    }
    fail("there is no " + type + " channel or buffer " + std::to_string(index),
         ErrorKind::InvalidArgument);
  }

  std::vector<End> endsOf(const Operation& op) const {
    std::vector<End> ends;
    for (const int id : op.channelIds) {
      ends.push_back({at_.rank, op.channelType, lookUp(block().channels, op.channelType, id)});
    }
    return ends;
  }

  /// The other end: of several connections of two ranks, the first of one is the first of the
  /// other.
  End otherEnd(const End& end) const {
    const auto connected = [&](int rank) -> const std::vector<int>& {
      static const std::vector<int> kNone;
      if (rank < 0 || rank >= plan_.ranks) return kNone;
      for (const ByType& list : program_.gpus[rank].channels) {
        if (list.type == end.type) return list.numbers;
      }
      return kNone;
    };
    const auto& here = connected(end.rank);
    if (end.index < 0 || end.index >= static_cast<int>(here.size())) {
      fail("there is no channel " + std::to_string(end.index), ErrorKind::InvalidArgument);
    }
    const int peer = here[end.index];
    const auto ordinal = std::count(here.begin(), here.begin() + end.index, peer);
    const auto& there = connected(peer);
    int64_t seen = 0;
    for (int i = 0; i < static_cast<int>(there.size()); ++i) {
      if (there[i] == end.rank && seen++ == ordinal) return {peer, end.type, i};
    }
    fail("rank " + std::to_string(peer) + " has no channel back", ErrorKind::InvalidArgument);
  }

  static bool signals(const std::string& name) {
    return name == "signal" || name == "rlxsignal" || name == "pws" || name == "pwsf";
  }
  static bool waits(const std::string& name) { return name == "wait" || name == "rlxwait"; }

  /// Which lane signals a channel, and which waits on it.
  void findUsers(const Operation& op) {
    const auto use = [&](auto& users, const auto& key, const char* what) {
      const auto [user, added] = users.try_emplace(key, at_);
      if (!added && !(user->second == at_)) {
        fail(std::string("several thread blocks ") + what + "; a plan has one");
      }
    };
    if (signals(op.name)) {
      for (const End& end : endsOf(op)) use(signallers_, end, "signal one channel");
    } else if (waits(op.name)) {
      for (const End& end : endsOf(op)) use(waiters_, end, "wait on one channel");
    } else if (op.name == "barrier") {
      auto& lanes = barriers_[{at_.rank, op.barrierId}];
      lanes.insert(at_);
    } else if (op.name == "sem_release" || op.name == "sem_acquire") {
      for (const int id : op.semaphoreIds) {
        auto& users = op.name == "sem_release" ? releasers_ : acquirers_;
        use(users, std::pair{at_.rank, id}, "use one semaphore in the same way");
      }
    }
  }

  int channelOf(LaneId from, LaneId to, const std::string& use, int credits = 0) {
    const auto [at, added] =
        channels_.try_emplace({from, to, use}, static_cast<int>(plan_.channels.size()));
    if (added) plan_.channels.push_back({from, to, credits});
    return at->second;
  }

  int signalChannel(const End& from) {
    const End to = otherEnd(from);
    const auto waiter = waiters_.find(to);
    const auto signaller = signallers_.find(from);
    if (waiter == waiters_.end() || signaller == signallers_.end()) {
      fail("nobody is at the other end of a channel of ranks " + std::to_string(from.rank) +
           " and " + std::to_string(to.rank));
    }
    return channelOf(signaller->second, waiter->second,
                     from.type + " " + std::to_string(from.index));
  }

  Lane& lane() { return plan_.programs[at_.rank][at_.lane]; }

  Place placeOf(const Chunk& chunk, const Operation& op) const {
    int rank = at_.rank;
    std::string type = chunk.type.value_or("");
    if (chunk.bufferId) {
      const int index = lookUp(block().remoteBufferRefs, op.channelType, *chunk.bufferId);
      const auto& buffers = program_.gpus[at_.rank].remoteBuffers;
      if (index < 0 || index >= static_cast<int>(buffers.size())) {
        fail("there is no remote buffer " + std::to_string(index), ErrorKind::InvalidArgument);
      }
      rank = buffers[index].rank;
      type = buffers[index].type;
    }
    const int share = chunk.size * factor_ / op.groupSize;
    int index = chunk.index * factor_ + op.groupIndex * share;
    if (type == "s") return {rank, Buffer::Scratch, index};
    if (type != "i" && type != "o") {
      fail("'" + type + "' is no buffer", ErrorKind::InvalidArgument);
    }
    if (type == "o") return {rank, Buffer::Output, index};
    if (!plan_.inPlace) return {rank, Buffer::Input, index};
    if (plan_.kind == CollectiveKind::AllGather) index += rank * plan_.chunks;
    return {rank, Buffer::Output, index};
  }

  /// A move whose part is settled later.
  Step& addMove(const Operation& op, const std::vector<Chunk>& to, const std::vector<Chunk>& from,
                bool readsPackets, bool writesPackets) {
    if (to.empty() || from.empty()) {
      fail("it lacks sources or destinations", ErrorKind::InvalidArgument);
    }
    Step step;
    step.count = from[0].size * factor_ / op.groupSize;
    for (const Chunk& chunk : from) step.from.push_back(placeOf(chunk, op));
    for (const Chunk& chunk : to) step.to.push_back(placeOf(chunk, op));
    step.packet = readsPackets || writesPackets;
    lane().push_back(step);
    const size_t index = lane().size() - 1;
    if (readsPackets) packetReads_.push_back({at_, index, 0});
    if (writesPackets) packetWrites_.push_back({at_, index, 0});
    return lane().back();
  }

  /// Several moves in one operation: the first source to the first destination, and so on.
  void addPairs(const Operation& op, bool writesPackets = false) {
    if (op.src.size() != op.dst.size()) {
      fail("it has " + std::to_string(op.src.size()) + " sources for " +
               std::to_string(op.dst.size()) + " destinations",
           ErrorKind::InvalidArgument);
    }
    for (size_t i = 0; i < op.src.size(); ++i) {
      addMove(op, {op.dst[i]}, {op.src[i]}, false, writesPackets);
    }
  }

  void lowerOperation(const Operation& op) {
    const std::string& name = op.name;
    if (op.usesSwitch || name.starts_with("gl") || name.starts_with("gstore")) {
      fail("plans know no multicast");
    }
    if (name == "nop" || name == "flush") return;  // steps of a lane are in order; puts too
    if (signals(name)) {
      if (name != "signal" && name != "rlxsignal") addPairs(op);
      Step step;
      for (const End& end : endsOf(op)) step.signals.push_back(signalChannel(end));
      lane().push_back(step);
    } else if (waits(name)) {
      Step step;
      for (const End& end : endsOf(op)) step.waits.push_back({signalChannel(otherEnd(end)), 1});
      lane().push_back(step);
    } else if (name == "barrier") {
      lowerBarrier(op);
    } else if (name == "sem_release" || name == "sem_acquire") {
      lowerSemaphore(op);
    } else if (name == "put" || name == "get" || name == "copy") {
      addPairs(op);
    } else if (name == "ppkt" || name == "cpkt") {
      addPairs(op, true);
    } else if (name == "upkt") {
      for (size_t i = 0; i < op.src.size() && i < op.dst.size(); ++i) {
        addMove(op, {op.dst[i]}, {op.src[i]}, true, false);
      }
    } else if (name == "rppkt") {
      addMove(op, op.dst, op.src, true, true);
    } else if (name == "re" || name == "res" || name == "rre" || name == "rres") {
      addMove(op, op.dst, op.src, false, false);
    } else if (name == "repkt") {
      addMove(op, op.dst, op.src, true, false);
    } else if (name == "respkt" || name == "recpkt" || name == "recspkt") {
      addMove(op, op.dst, op.src, true, true);
    } else {
      fail("there is no such operation", ErrorKind::InvalidArgument);
    }
  }

  /// Everybody tells everybody, then hears from everybody.
  void lowerBarrier(const Operation& op) {
    const auto& lanes = barriers_[{at_.rank, op.barrierId}];
    if (op.barrierBlocks != 0 && static_cast<int>(lanes.size()) != op.barrierBlocks) {
      fail(std::to_string(lanes.size()) + " thread blocks use it, not " +
               std::to_string(op.barrierBlocks),
           ErrorKind::InvalidArgument);
    }
    addBarrier(lanes, "barrier " + std::to_string(op.barrierId));
  }

  void addBarrier(const std::set<LaneId>& lanes, const std::string& use) {
    if (lanes.size() < 2) return;
    Step tell, hear;
    for (const LaneId& other : lanes) {
      if (other == at_) continue;
      tell.signals.push_back(channelOf(at_, other, use));
      hear.waits.push_back({channelOf(other, at_, use), 1});
    }
    lane().push_back(tell);
    lane().push_back(hear);
  }

  void lowerSemaphore(const Operation& op) {
    Step step;
    for (const int id : op.semaphoreIds) {
      const std::pair key{at_.rank, id};
      if (!releasers_.contains(key) || !acquirers_.contains(key)) {
        fail("semaphore " + std::to_string(id) + " is not both acquired and released");
      }
      const auto& initial = program_.gpus[at_.rank].semaphores;
      if (id < 0 || id >= static_cast<int>(initial.size())) {
        fail("there is no semaphore " + std::to_string(id), ErrorKind::InvalidArgument);
      }
      const int channel = channelOf(releasers_.at(key), acquirers_.at(key),
                                    "semaphore " + std::to_string(id), initial[id]);
      if (op.name == "sem_release") {
        step.signals.push_back(channel);
      } else {
        step.waits.push_back({channel, 1});
      }
    }
    lane().push_back(step);
  }

  /// Every write of packets gets a channel to every lane that reads them.
  void settlePackets() {
    std::map<Slot, const PacketWrite*> writers;
    for (const PacketWrite& write : packetWrites_) {
      at_ = write.lane;
      const Step& step = plan_.lane(write.lane)[write.step];
      for (const Place& place : step.to) {
        for (int i = 0; i < step.count && place.buffer == Buffer::Scratch; ++i) {
          if (!writers.try_emplace({place.rank, place.index + i}, &write).second) {
            fail("scratch[" + std::to_string(place.index + i) + "] of rank " +
                 std::to_string(place.rank) + " gets packets twice");
          }
        }
      }
    }
    std::set<std::tuple<LaneId, size_t, LaneId>> announced;
    for (const PacketWrite& read : packetReads_) {
      at_ = read.lane;
      Step& step = plan_.lane(read.lane)[read.step];
      std::set<const PacketWrite*> awaited;
      for (const Place& place : step.from) {
        for (int i = 0; i < step.count && place.buffer == Buffer::Scratch; ++i) {
          const auto writer = writers.find({place.rank, place.index + i});
          if (writer == writers.end()) {
            fail("nobody writes packets to scratch[" + std::to_string(place.index + i) +
                 "] of rank " + std::to_string(place.rank));
          }
          awaited.insert(writer->second);
        }
      }
      for (const PacketWrite* write : awaited) {
        if (write->lane == read.lane) continue;  // in order anyway
        if (!announced.emplace(write->lane, write->step, read.lane).second) continue;
        const int channel =
            channelOf(write->lane, read.lane, "packets " + std::to_string(write->step));
        plan_.lane(write->lane)[write->step].signals.push_back(channel);
        step.waits.push_back({channel, 1});
      }
    }
  }

  /// Which part of a block each step moves: that of a user's buffer, or what was written to
  /// scratch.
  void settleParts() {
    std::map<Slot, int> parts;
    std::set<Step*> settled;
    size_t before = 1;
    while (before != settled.size()) {
      before = settled.size();
      for (auto& lanes : plan_.programs) {
        for (Lane& lane : lanes) {
          for (Step& step : lane) settle(step, parts, settled);
        }
      }
      if (settled.empty()) break;
    }
  }
  void settle(Step& step, std::map<Slot, int>& parts, std::set<Step*>& settled) const {
    if (!step.moves() || settled.contains(&step)) return;
    int part = -1;
    for (const auto* list : {&step.from, &step.to}) {
      for (const Place& place : *list) {
        if (part >= 0) continue;
        if (place.buffer != Buffer::Scratch) {
          part = place.index % plan_.chunks;
        } else if (const auto known = parts.find({place.rank, place.index}); known != parts.end()) {
          part = known->second;
        }
      }
    }
    if (part < 0) return;
    step.part = part;
    settled.insert(&step);
    for (const Place& place : step.to) {
      for (int i = 0; i < step.count && place.buffer == Buffer::Scratch; ++i) {
        parts[{place.rank, place.index + i}] = (part + i) % plan_.chunks;
      }
    }
  }

  /// A rank's next execution begins when all its lanes have ended this one.
  void joinLanes() {
    for (int r = 0; r < plan_.ranks; ++r) {
      std::set<LaneId> lanes;
      for (int l = 0; l < static_cast<int>(plan_.programs[r].size()); ++l) lanes.insert({r, l});
      for (const LaneId& id : lanes) {
        at_ = id;
        addBarrier(lanes, "end");
      }
    }
  }

  const Program& program_;
  Plan plan_;
  int factor_ = 1;  // of our chunks in one of theirs
  LaneId at_;
  const Operation* op_ = nullptr;
  std::map<End, LaneId> signallers_, waiters_;
  std::map<std::pair<int, int>, std::set<LaneId>> barriers_;
  std::map<std::pair<int, int>, LaneId> releasers_, acquirers_;
  std::map<std::tuple<LaneId, LaneId, std::string>, int> channels_;
  std::vector<PacketWrite> packetWrites_, packetReads_;
};

}  // namespace

Plan lower(const Program& program) { return Lowering(program).run(); }

}  // namespace ctran::plan::mscclpp
