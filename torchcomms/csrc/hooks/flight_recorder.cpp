#include "torchcomms/csrc/hooks/flight_recorder.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>

#include "torchcomms/csrc/hooks/pickle.hpp"

namespace torch::comms {

using ctran::Json;

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Thread {
  std::string name;
  int id = 0;
};

/// Of the caller, as they were when it was first asked.
const Thread& thisThread() {
  thread_local const Thread thread = [] {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return Thread{name.data(), ::gettid()};
  }();
  return thread;
}

std::vector<std::vector<int64_t>> sizesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<int64_t>> sizes;
  sizes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.sizes().vec());
  return sizes;
}

std::vector<std::string> typesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> types;
  types.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    types.emplace_back(c10::toString(tensor.scalar_type()));
  }
  return types;
}

/// Where rank `rank` of a group stands among its members: fr_trace numbers them in rising order.
int placeOf(const FlightRecorder::Group& group, int rank) {
  return static_cast<int>(std::count_if(group.ranks.begin(), group.ranks.end(),
                                        [&](int other) { return other < group.ranks[rank]; }));
}

/// "send 0->1"; a peer of -1 is any.
std::string messageName(const FlightRecorder::Group& group, std::string_view what, bool leaves,
                        int peer) {
  return std::string(what) + " " + std::to_string(placeOf(group, group.rank)) +
         (leaves ? "->" : "<-") + (peer < 0 ? "?" : std::to_string(placeOf(group, peer)));
}

/// fr_trace knows one gather, and of what a rank alone knows the sizes one operation.
OpName knownToTrace(OpName name) {
  if (name == OpName::gather_single) return OpName::gather;
  const bool dynamic =
      name >= OpName::all_to_all_v_dynamic && name <= OpName::all_to_all_v_dedup_combine;
  return dynamic ? OpName::all_to_all_v_single : name;
}

/// "[0,1]".
std::string textOf(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return "[" + text + "]";
}

bool isOneSided(OpName name) { return name > OpName::reconfigure; }

}  // namespace

void FlightRecorder::reserve(size_t capacity) {
  const std::lock_guard lock(mutex_);
  capacity_ = std::max(capacity_, capacity);
}

FlightRecorder::GroupPtr FlightRecorder::addGroup(const std::string& name,
                                                  const std::string& backend,
                                                  std::vector<int> ranks, int rank) {
  const std::lock_guard lock(mutex_);
  return addLocked(name, backend, std::move(ranks), rank);
}

void FlightRecorder::setBroken(const GroupPtr& group, bool broken) {
  const std::lock_guard lock(mutex_);
  group->broken = broken;
}

std::vector<std::string> FlightRecorder::broken() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const GroupPtr& group : groups_) {
    if (group->broken) names.push_back(group->name);
  }
  return names;
}

int FlightRecorder::rank() const {
  const std::lock_guard lock(mutex_);
  return groups_.empty() ? 0 : groups_.front()->ranks[groups_.front()->rank];
}

FlightRecorder::GroupPtr FlightRecorder::addLocked(std::string name, const std::string& backend,
                                                   std::vector<int> ranks, int rank) {
  const int sameName = names_[name]++;
  if (sameName != 0) name += "#" + std::to_string(sameName + 1);
  auto group = std::make_shared<Group>();
  group->id = static_cast<int>(groups_.size());
  group->name = std::move(name);
  group->backend = backend;
  group->ranks = std::move(ranks);
  group->rank = rank;
  groups_.push_back(group);
  return group;
}

void FlightRecorder::add(const GroupPtr& group, uint64_t opId, std::string name,
                         const std::vector<at::Tensor>& inputs,
                         const std::vector<at::Tensor>& outputs, std::chrono::milliseconds timeout,
                         bool isPointToPoint) {
  Entry entry;
  entry.record = next_++;
  entry.group = group;
  entry.collectiveNumber = group->collectives;
  entry.pointToPointNumber = group->pointToPoints;
  entry.opId = opId;
  entry.name = std::move(name);
  entry.inputSizes = sizesOf(inputs);
  entry.outputSizes = sizesOf(outputs);
  entry.inputTypes = typesOf(inputs);
  entry.outputTypes = typesOf(outputs);
  entry.timeoutMillis = timeout.count();
  entry.isPointToPoint = isPointToPoint;
  entry.threadName = thisThread().name;
  entry.threadId = thisThread().id;
  entry.created = now();
  entries_.push_back(std::move(entry));
  while (entries_.size() > capacity_) entries_.pop_front();
}

void FlightRecorder::start(Entry& entry, int64_t at) {
  if (entry.state != State::Scheduled) return;
  entry.state = State::Started;
  entry.startedAt = at;
  if (!entry.isPointToPoint) entry.group->lastStarted = entry.collectiveNumber;
}

template <typename Change>
void FlightRecorder::change(Records records, Change change) {
  if (entries_.empty()) return;
  const uint64_t oldest = entries_.front().record;
  for (uint64_t r = std::max(records.first, oldest); r < records.end; ++r) {
    if (r - oldest < entries_.size()) change(entries_[r - oldest]);
  }
}

FlightRecorder::Records FlightRecorder::begin(const GroupPtr& group, OpName name, uint64_t opId,
                                              const PreHookArgs& args) {
  const OperationView view = viewOf(args);
  const std::lock_guard lock(mutex_);
  const uint64_t first = next_;
  if (const auto* batch = std::get_if<BatchOpIssuePreHookArgs>(&args)) {
    ++group->pointToPoints;  // one number for all of it
    for (const P2POp& op : batch->ops) {
      const bool sends = op.type == P2POp::Type::SEND;
      const std::vector<at::Tensor> none;
      const std::vector<at::Tensor> one{op.tensor};
      add(group, opId, messageName(*group, sends ? "send" : "recv", sends, op.peer),
          sends ? one : none, sends ? none : one, view.timeout, /*isPointToPoint=*/true);
    }
    if (batch->ops.size() > 1) add(group, opId, "coalesced", {}, {}, view.timeout, true);
  } else if (isOneSided(name)) {
    beginOneSided(group, name, opId, view);
  } else if (view.peer) {
    ++group->pointToPoints;
    add(group, opId, messageName(*group, toString(name), name == OpName::send, *view.peer),
        view.inputs, view.outputs, view.timeout, /*isPointToPoint=*/true);
  } else {
    ++group->collectives;
    add(group, opId, std::string(toString(knownToTrace(name))), view.inputs, view.outputs,
        view.timeout,
        /*isPointToPoint=*/false);
  }
  const Records records{first, next_};
  if (!view.async_op) change(records, [&](Entry& entry) { start(entry, entry.created); });
  return records;
}

void FlightRecorder::beginOneSided(const GroupPtr& group, OpName name, uint64_t opId,
                                   const OperationView& view) {
  if (!group->oneSided) {
    group->oneSided =
        addLocked(group->name + "/windows", group->backend, {group->ranks[group->rank]}, 0);
  }
  ++group->oneSided->collectives;
  const bool leaves = name != OpName::get && name != OpName::wait_signal;
  add(group->oneSided, opId, messageName(*group, toString(name), leaves, view.peer.value_or(-1)),
      view.inputs, view.outputs, view.timeout, /*isPointToPoint=*/false);
  entries_.back().isOneSided = true;
}

void FlightRecorder::started(Records records) {
  const std::lock_guard lock(mutex_);
  change(records, [this, at = now()](Entry& entry) { start(entry, at); });
}

void FlightRecorder::completed(Records records) {
  const std::lock_guard lock(mutex_);
  change(records, [this, at = now()](Entry& entry) {
    start(entry, at);
    entry.state = State::Completed;
    entry.completedAt = at;
    if (!entry.isPointToPoint) entry.group->lastCompleted = entry.collectiveNumber;
  });
}

void FlightRecorder::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

size_t FlightRecorder::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::string FlightRecorder::json(bool includeCompleted) const {
  return describe(includeCompleted, /*forAnalyzer=*/false).print();
}

std::string FlightRecorder::pickle(bool includeCompleted) const {
  return pickled(describe(includeCompleted, /*forAnalyzer=*/true));
}

Json FlightRecorder::describe(bool includeCompleted, bool forAnalyzer) const {
  const std::lock_guard lock(mutex_);
  Json groups = Json::object();
  Json statuses = Json::object();
  for (const GroupPtr& group : groups_) {
    Json config = Json::object();
    config.set("name", group->name).set("desc", "undefined").set("ranks", textOf(group->ranks));
    groups.set(group->name, std::move(config));
    Json status = Json::object();
    status.set("last_enqueued_collective", group->collectives > 0 ? group->collectives : -1)
        .set("last_started_collective", group->lastStarted)
        .set("last_completed_collective", group->lastCompleted);
    statuses.set(std::to_string(group->id), std::move(status));
  }
  Json entries = Json::array();
  for (const Entry& entry : entries_) {
    if (includeCompleted || entry.state != State::Completed) {
      entries.push(describe(entry, forAnalyzer));
    }
  }
  Json all = Json::object();
  all.set("version", "2.10")
      .set("comm_lib_version", TORCHCOMMS_VERSION)
      .set("pg_config", std::move(groups))
      .set("pg_status", std::move(statuses))
      .set("entries", std::move(entries));
  return all;
}

/// For the analyzer, fr_trace, some things have to be said in its own way. It takes neighbours with
/// one number for one batch, also a collective and a send: their numbers must be apart. It refuses
/// operations that it does not know, but for "coalesced".
Json FlightRecorder::describe(const Entry& entry, bool forAnalyzer) {
  constexpr int64_t kApart = int64_t{1} << 32;
  const auto sizes = [](const std::vector<std::vector<int64_t>>& all) {
    Json lists = Json::array();
    for (const auto& one : all) lists.push(Json::array({one.begin(), one.end()}));
    return lists;
  };
  const auto types = [](const std::vector<std::string>& all) {
    return Json::array({all.begin(), all.end()});
  };
  const auto time = [](int64_t nanos) { return nanos == 0 ? Json() : Json(nanos); };
  constexpr std::array<std::string_view, 3> kStates{"scheduled", "started", "completed"};
  const bool done = entry.state == State::Completed;
  const bool disguised = entry.isOneSided && forAnalyzer;
  const int64_t apart = entry.isPointToPoint && forAnalyzer ? kApart : 0;

  Json json = Json::object();
  json.set("record_id", static_cast<int64_t>(entry.record))
      .set("pg_id", entry.group->id)
      .set("process_group", Json::array({entry.group->name, "undefined"}))
      .set("thread_name", entry.threadName)
      .set("thread_id", std::to_string(entry.threadId))
      .set("collective_seq_id", entry.collectiveNumber)
      .set("p2p_seq_id", entry.pointToPointNumber + apart)
      .set("op_id", static_cast<int64_t>(entry.opId))
      .set("profiling_name", entry.group->backend + (disguised ? ":coalesced " : ":") + entry.name)
      .set("time_created_ns", entry.created)
      .set("duration_ms",
           done ? Json(static_cast<double>(entry.completedAt - entry.startedAt) / 1e6) : Json())
      .set("input_sizes", sizes(entry.inputSizes))
      .set("input_dtypes", types(entry.inputTypes))
      .set("output_sizes", sizes(entry.outputSizes))
      .set("output_dtypes", types(entry.outputTypes))
      .set("state", kStates[static_cast<size_t>(entry.state)])
      .set("time_discovered_started_ns", time(entry.startedAt))
      .set("time_discovered_completed_ns", time(entry.completedAt))
      .set("retired", done)
      .set("timeout_ms", entry.timeoutMillis)
      .set("is_p2p", entry.isPointToPoint)
      .set("frames", Json::array());
  return json;
}

}  // namespace torch::comms
