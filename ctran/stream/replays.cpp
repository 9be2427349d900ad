#include "ctran/stream/replays.h"

#include <algorithm>
#include <new>

#include "ctran/gpu/discard.h"

namespace ctran {

namespace {

using gpu::DevicePtr;

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
  };

  std::optional<Running> running(const gpu::Runtime& runtime, Clock::time_point now);

  const uint64_t id;
  Word* const word;
  // Guarded by the mutex of Replays.
  std::vector<Operation> operations;
  std::optional<Clock::time_point> since;  ///< the same replay has been running

 private:
  Replays& replays_;
};

std::optional<Replays::Running> Replays::Captured::running(const gpu::Runtime& runtime,
                                                           Clock::time_point now) {
  // Operations of a graph end in order: if the last has ended, all have.
  const auto hasEnded = [&](const Operation& one) { return runtime.isReached(one.end.get()); };
  if (operations.empty() || hasEnded(operations.back())) {
    since.reset();
    return std::nullopt;
  }
  // Before the word: one whose operations have ended has written it.
  const auto first = std::partition_point(operations.begin(), operations.end() - 1, hasEnded);
  uint32_t expected = kBegun;
  if (word->compare_exchange_strong(expected, kSeen) || !since) since = now;
  return Running{first->name, first->sequence, first->timeout, *since};
}

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
  graph.operations.push_back({name, sequence, timeout, std::move(end)});
}

std::optional<Replays::Running> Replays::mostUrgent(Clock::time_point now) {
  std::vector<std::shared_ptr<Captured>> present;
  std::optional<Running> urgent;
  const std::lock_guard lock(mutex_);
  for (const auto& graph : graphs_) {
    auto one = graph.lock();
    if (!one) continue;
    present.push_back(std::move(one));
    const std::optional<Running> running = present.back()->running(runtime_, now);
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
