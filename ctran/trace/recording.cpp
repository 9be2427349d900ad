#include "ctran/trace/recording.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>
#include <set>
#include <sstream>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/config.h"
#include "ctran/base/text.h"

namespace ctran {
namespace {

const ConfigBool kTrace{"CTRAN_TRACE", true,
                        "Record every operation, for `torchcomms analyze`, `top` and `trace`.",
                        ConfigVariable::Change::Live};

/// Those that a change of kTrace turns on or off.
struct Recordings {
  std::mutex mutex;
  std::set<Recording*> all;
};
Recordings& recordings() {
  static Recordings& only = *new Recordings;
  return only;
}
const WhenLiveChanges kTraceChanges{kTrace, [] {
                                      const bool on = kTrace.get();
                                      const std::lock_guard lock(recordings().mutex);
                                      for (Recording* one : recordings().all) one->turn(on);
                                    }};
// A lock that another thread held stays held in a child's copy: the child starts with a fresh one.
[[maybe_unused]] const int gRecordingsAtFork =
    pthread_atfork(nullptr, nullptr, [] { new (&recordings().mutex) std::mutex; });

int64_t realNanos() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Clock ticks after boot at which this process started: field 22 of /proc/self/stat.
uint64_t processStart() {
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  const size_t name = line.rfind(')');  // a name may hold spaces
  if (name == std::string::npos) return 0;
  std::istringstream fields(line.substr(name + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t start = 0;
  fields >> start;
  return start;
}

}  // namespace

Recording::Recording(std::shared_ptr<SharedMapping> memory, int ranks, int index, const Who& who)
    : memory_(std::move(memory)) {
  std::byte* const end = memory_->data() + memory_->size();
  std::byte* const own = end - bytesFor(ranks) + index * kRankBytes;
  header_ = reinterpret_cast<RecordingHeader*>(own);
  setting_ = reinterpret_cast<RecordedSetting*>(own + RecordedSetting::kOffset);
  choices_ = reinterpret_cast<RecordedChoice*>(own + kHeaderBytes);
  links_ = reinterpret_cast<RecordedLink*>(own + kHeaderBytes + kChoicesBytes);
  collectives_ = reinterpret_cast<RecordSlot*>(own + kHeaderBytes + kChoicesBytes + kLinksBytes);
  messages_ = collectives_ + kCollectives;
  replays_ = messages_ + kMessages;

  const auto set = [](std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  };
  set(header_->rank, who.rank);
  set(header_->size, who.size);
  set(header_->pid, ::getpid());
  set(header_->processStart, processStart());
  set(header_->hasTickCounter, kHasTickCounter ? 1 : 0);
  set(header_->ticks, ticks());
  set(header_->monotonic, nowNanos());
  set(header_->realtime, realNanos());
  set(header_->timeout, who.timeoutNanos);
  set(header_->takesSettings, who.takesSettings ? 1 : 0);
  copyText(header_->name, who.name);
  copyText(header_->host, who.host);
  header_->state.store(static_cast<uint64_t>(RecordingHeader::State::Alive),
                       std::memory_order_release);

  // All ranks of the host write the same.
  auto& footer = *reinterpret_cast<RecordingFooter*>(end - kPage);
  set(footer.ranks, ranks);
  set(footer.group, who.group);
  footer.magic.store(RecordingFooter::kMagic, std::memory_order_release);

  const std::lock_guard lock(recordings().mutex);
  turn(kTrace.get());
  recordings().all.insert(this);
}

Recording::~Recording() {
  const std::lock_guard lock(recordings().mutex);
  recordings().all.erase(this);
}

std::optional<Recording::Asked> Recording::asked() const {
  const uint64_t number = setting_->asked.load(std::memory_order_acquire);
  if (number == setting_->answered.load(std::memory_order_relaxed)) return std::nullopt;
  return Asked{number, printable(boundedText(setting_->name)),
               printable(boundedText(setting_->value))};
}

void Recording::answer(uint64_t number, std::string_view why) {
  copyText(setting_->answer, why);
  setting_->answered.store(number, std::memory_order_release);
}

uint32_t Recording::choice(std::string_view algorithm, std::string_view why) {
  std::lock_guard lock(mutex_);
  RecordedChoice entry{};
  copyText(entry.algorithm, algorithm);
  copyText(entry.why, why);
  const uint64_t count = header_->choices.load(std::memory_order_relaxed);
  for (uint64_t i = 0; i < count; ++i) {
    if (std::memcmp(&choices_[i], &entry, sizeof entry) == 0) return static_cast<uint32_t>(i + 1);
  }
  if (count == kChoices) return 0;
  std::memcpy(&choices_[count], &entry, sizeof entry);
  header_->choices.store(count + 1, std::memory_order_release);
  return static_cast<uint32_t>(count + 1);
}

RecordedLink* Recording::link(int peer) {
  const auto name = static_cast<uint64_t>(peer) + 1;
  for (uint64_t i = 0; i < kLinks; ++i) {
    const uint64_t known = links_[i].peer.load(std::memory_order_relaxed);
    if (known == name) return &links_[i];
    if (known != 0) continue;
    links_[i].peer.store(name, std::memory_order_release);
    return &links_[i];
  }
  return nullptr;
}

std::string Recording::algorithm(uint32_t choice) const {
  if (choice == 0 || choice > header_->choices.load(std::memory_order_acquire)) return {};
  return choices_[choice - 1].algorithm;
}

void Recording::failed(const Error& error) {
  std::lock_guard lock(mutex_);
  if (header_->failedWith.load(std::memory_order_relaxed) != 0) return;
  copyText(header_->failure, error.what());
  for (size_t i = 0; i < std::min(error.ranks().size(), RecordingHeader::kBlamed); ++i) {
    header_->blamed[i].store(static_cast<uint64_t>(error.ranks()[i]) + 1,
                             std::memory_order_relaxed);
  }
  header_->failedWith.store(static_cast<uint64_t>(error.kind()) + 1, std::memory_order_release);
}

void Recording::left() {
  header_->state.store(static_cast<uint64_t>(RecordingHeader::State::Left),
                       std::memory_order_release);
}

}  // namespace ctran
