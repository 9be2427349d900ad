#include "ctran/stream/replays.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/gpu/discard.h"
#include "ctran/trace/replay_trace.h"

namespace ctran {

namespace {

using gpu::DevicePtr;

const ConfigBool kTraceGraphs{
    "CTRAN_TRACE_GRAPHS", false,
    "Graphs that capture operations on GPUs from then on tell when these run, so that replays are "
    "recorded as CTRAN_TRACE says. On H200 a replay takes 3.3 us longer, and 0.4 us for each "
    "operation.",
    ConfigVariable::Change::Live};

constexpr uint32_t kNotReplayed = 0;
constexpr uint32_t kBegun = 1;
constexpr uint32_t kSeen = 2;
constexpr size_t kWordsOfPage = 1024;

}  // namespace

class Replays::Captured {
 public:
  Captured(Replays& replays, uint64_t id) : id(id), word(replays.takeWord()), replays_(replays) {}
  ~Captured() { replays_.giveWord(word); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  struct Operation {
    std::string_view name;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
    gpu::PooledEvent end;
    std::shared_ptr<ReplayTrace> trace;
  };

  std::optional<Running> look(const gpu::Runtime& runtime, Clock::time_point now);

  const uint64_t id;
  Word* const word;
  // Guarded by the mutex of Replays.
  std::vector<Operation> operations;
  std::optional<Clock::time_point> since;  ///< the same replay has been running

 private:
  /// Returns whether a replay has begun since this was asked the last time.
  bool hasBegun() {
    uint32_t expected = kBegun;
    return word->compare_exchange_strong(expected, kSeen);
  }
  /// `begun` since the last look; `ended`: how many operations have, of the replay that runs.
  void record(bool begun, size_t ended);
  void endRecords(size_t upTo, uint64_t now);

  Replays& replays_;
  bool isRecorded_ = false;  ///< a replay has begun, and has not ended
  size_t ended_ = 0;         ///< how many of its operations have records that tell their ends
  uint64_t lookedAt_ = ticks();
};

std::optional<Replays::Running> Replays::Captured::look(const gpu::Runtime& runtime,
                                                        Clock::time_point now) {
  if (operations.empty()) return std::nullopt;
  // Operations of a graph end in order: if the last has ended, all have.
  const auto hasEnded = [&](const Operation& one) { return runtime.isReached(one.end.get()); };
  // Before the events: if the last of them is reached then, what has begun has ended.
  bool begun = hasBegun();
  if (hasEnded(operations.back())) {
    record(begun, operations.size());
    since.reset();
    return std::nullopt;
  }
  const auto first = std::partition_point(operations.begin(), operations.end() - 1, hasEnded);
  // After the events: one whose operations have ended has written the word.
  begun = hasBegun() || begun;
  record(begun, static_cast<size_t>(first - operations.begin()));
  if (begun || !since) since = now;
  const auto limited = std::find_if(first, operations.end(),
                                    [](const Operation& one) { return one.timeout.count() != 0; });
  if (limited == operations.end()) return std::nullopt;
  return Running{limited->name, limited->sequence, limited->timeout, *since};
}

void Replays::Captured::endRecords(size_t upTo, uint64_t now) {
  for (; ended_ < upTo; ++ended_) operations[ended_].trace->ended(lookedAt_, now);
}

void Replays::Captured::record(bool begun, size_t ended) {
  const size_t all = operations.size();
  const uint64_t now = ticks();
  if (isRecorded_ && (begun || ended == all)) endRecords(all, now);
  if (begun) ended_ = 0;
  const size_t before = ended_;
  if (begun || isRecorded_) endRecords(ended, now);
  isRecorded_ = (begun || isRecorded_) && ended < all;
  // What the events say starts again with each launch, also while an earlier replay runs.
  const bool moved = begun || ended_ != before;
  if (isRecorded_ && moved) operations[ended_].trace->began(now);
  lookedAt_ = now;
}

bool Replays::areRecorded() { return kTraceGraphs.get(); }

Replays::~Replays() {
  for (void* page : pages_) {
    gpu::discard(runtime_, device_, [&runtime = runtime_, page] { runtime.memFreeHost(page); });
  }
}

std::shared_ptr<Replays::Captured> Replays::enter(gpu::Stream stream) {
  if (!runtime_.streamWriteValue32) return nullptr;
  const uint64_t id = runtime_.captureOf(stream);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(graphs_, [](const auto& graph) { return graph.expired(); });
    for (const auto& graph : graphs_) {
      if (auto one = graph.lock(); one && one->id == id) return one;
    }
  }
  auto graph = std::make_shared<Captured>(*this, id);
  void* const word = graph->word;
  DevicePtr address = 0;
  runtime_.check(runtime_.memHostGetDevicePointer(&address, word, 0), "mapping memory of the host");
  runtime_.check(runtime_.streamWriteValue32(stream, address, kBegun, 0),
                 "capturing that a replay begins");
  const std::lock_guard lock(mutex_);
  graphs_.push_back(graph);
  return graph;
}

void Replays::leave(Captured& graph, gpu::Stream stream, std::string_view name, uint64_t sequence,
                    std::chrono::milliseconds timeout) {
  gpu::PooledEvent end(events_);
  runtime_.check(runtime_.eventRecordWithFlags(end.get(), stream, gpu::kEventRecordExternal),
                 "capturing an event");
  const std::lock_guard lock(mutex_);
  graph.operations.push_back({name, sequence, timeout, std::move(end), ReplayTrace::make()});
}

std::optional<Replays::Running> Replays::mostUrgent(Clock::time_point now) {
  std::vector<std::shared_ptr<Captured>> present;
  std::optional<Running> urgent;
  const std::lock_guard lock(mutex_);
  for (const auto& graph : graphs_) {
    auto one = graph.lock();
    if (!one) continue;
    present.push_back(std::move(one));
    const std::optional<Running> running = present.back()->look(runtime_, now);
    if (running && (!urgent || running->deadline() < urgent->deadline())) urgent = running;
  }
  return urgent;
}

Replays::Word* Replays::takeWord() {
  const std::lock_guard lock(wordsMutex_);
  if (words_.empty()) {
    const gpu::RelaxedCapture relaxed(runtime_);
    void* page = nullptr;
    runtime_.check(runtime_.memHostAlloc(&page, kWordsOfPage * sizeof(Word),
                                         gpu::kHostPortable | gpu::kHostDeviceMap),
                   "allocating memory of the host that the device writes");
    pages_.push_back(page);
    for (size_t i = 0; i < kWordsOfPage; ++i) {
      words_.push_back(new (static_cast<Word*>(page) + i) Word(kNotReplayed));
    }
  }
  Word* const word = words_.back();
  words_.pop_back();
  word->store(kNotReplayed);
  return word;
}

void Replays::giveWord(Word* word) {
  const std::lock_guard lock(wordsMutex_);
  words_.push_back(word);
}

}  // namespace ctran
