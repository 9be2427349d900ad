#include "ctran/trace/reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/base/text.h"
#include "ctran/trace/preparation.h"

namespace ctran {
namespace {

constexpr uint64_t kMostRanks = 4096;  // of a host, as far as a reader believes it
constexpr int64_t kLargest = int64_t{1} << 53;

template <size_t N>
std::string textOf(const char (&text)[N]) {
  // What is shown on a terminal must not be able to steer it, nor look like another line.
  std::string line = printable(boundedText(text));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

/// The same file as words that nobody changes any more.
struct SlotCopy {
  uint64_t version, what, count, bytes, calledAt, startedAt, tag, choice;
  uint64_t waitingFor, waitingSince, firstAt, waited, longestWait, longestFor, failedWith, endedAt;
};
static_assert(sizeof(SlotCopy) == sizeof(RecordSlot));

/// From ticks of a rank to nanoseconds.
class TickClock {
 public:
  TickClock(uint64_t hasCounter, uint64_t ticks0, uint64_t nanos0)
      : ticks0_(ticks0), nanos0_(nanos0) {
    if (hasCounter == 0) return;
    const int64_t before = nowNanos();
    const uint64_t now = ticks();
    const int64_t after = nowNanos();
    const int64_t between = before + (after - before) / 2;
    const double passed = static_cast<double>(between) - double(nanos0);
    const auto counted = static_cast<double>(static_cast<int64_t>(now - ticks0));
    if (counted > 0 && passed > 0) rate_ = passed / counted;
  }
  int64_t duration(uint64_t count) const {
    return static_cast<int64_t>(
        std::clamp(static_cast<double>(count) * rate_, 0.0, double(kLargest)));
  }
  int64_t at(uint64_t when) const {
    if (when == 0) return 0;
    const double nanos =
        static_cast<double>(static_cast<int64_t>(when - ticks0_)) * rate_ + double(nanos0_);
    return static_cast<int64_t>(std::clamp(nanos, 0.0, double(kLargest)));
  }

 private:
  uint64_t ticks0_, nanos0_;
  double rate_ = 1;
};

int bounded(uint64_t value, int most) {
  return value <= static_cast<uint64_t>(most) ? static_cast<int>(value) : -1;
}

int failureKindOf(uint64_t failedWith) { return bounded(failedWith, 64) - 1; }

class RankReader {
 public:
  RankReader(int fd, uint64_t base) : fd_(fd), base_(base) {
    static_assert(sizeof(RecordingHeader) % 8 == 0);
    readAt(fd, base, header_, sizeof header_);
  }

  /// All but the operations.
  std::optional<RankRecording> about() const {
    // A copy of memory whose words are atomic only where others write them.
    const auto& h = *reinterpret_cast<const RecordingHeader*>(header_);
    const auto word = [](const std::atomic<uint64_t>& w) {
      return w.load(std::memory_order_relaxed);
    };
    constexpr int kMost = 1 << 24;
    RankRecording out;
    const uint64_t state = word(h.state);
    if (state == 0) return std::nullopt;
    out.hasLeft = state == static_cast<uint64_t>(RecordingHeader::State::Left);
    out.rank = bounded(word(h.rank), kMost);
    out.size = bounded(word(h.size), kMost);
    if (out.rank < 0 || out.size < 1 || out.rank >= out.size) return std::nullopt;
    out.pid = bounded(word(h.pid), 1 << 30);
    out.processStart = std::min<uint64_t>(word(h.processStart), kLargest);
    const uint64_t mono = std::min<uint64_t>(word(h.monotonic), kLargest);
    out.realtimeOffset = static_cast<int64_t>(std::min<uint64_t>(word(h.realtime), INT64_MAX / 2)) -
                         static_cast<int64_t>(mono);
    out.timeout = static_cast<int64_t>(std::min<uint64_t>(word(h.timeout), kLargest));
    out.collectives = std::min<uint64_t>(word(h.nextCollective), kLargest);
    out.messages = std::min<uint64_t>(word(h.nextMessage), kLargest);
    out.queued = std::min<uint64_t>(word(h.queued), kMost);
    out.failedWith = failureKindOf(word(h.failedWith));
    out.name = textOf(h.name);
    out.host = textOf(h.host);
    if (out.failedWith >= 0) {
      out.failure = textOf(h.failure);
      for (const auto& blamed : h.blamed) {
        const int rank = bounded(word(blamed), out.size) - 1;
        if (rank >= 0) out.blames.push_back(rank);
      }
    }
    out.replayed = std::min<uint64_t>(word(h.nextReplay), kLargest);
    out.tellsReplays = word(h.tellsReplays) != 0;
    out.isOff = word(h.isOff) != 0;
    out.takesSettings = word(h.takesSettings) != 0;
    return out;
  }

  std::optional<RankRecording> read() {
    auto out = about();
    if (!out) return out;
    const auto& h = *reinterpret_cast<const RecordingHeader*>(header_);
    const auto word = [](const std::atomic<uint64_t>& w) {
      return w.load(std::memory_order_relaxed);
    };
    const TickClock clock(word(h.hasTickCounter), word(h.ticks),
                          std::min<uint64_t>(word(h.monotonic), kLargest));
    readChoices(std::min<uint64_t>(word(h.choices), Recording::kChoices));
    out->since = static_cast<int64_t>(std::min<uint64_t>(word(h.monotonic), kLargest));
    readLinks(*out, std::min<uint64_t>(word(h.readOfEach), kLargest / 8));
    const uint64_t rings =
        base_ + Recording::kHeaderBytes + Recording::kChoicesBytes + Recording::kLinksBytes;
    const uint64_t messages = rings + Recording::kCollectives * sizeof(SlotCopy);
    const uint64_t replays = messages + Recording::kMessages * sizeof(SlotCopy);
    for (const SlotCopy& slot : ring(rings, Recording::kCollectives)) {
      out->operations.push_back(operation(slot, false, clock));
    }
    for (const SlotCopy& slot : ring(messages, Recording::kMessages)) {
      out->operations.push_back(operation(slot, true, clock));
    }
    for (const SlotCopy& slot : ring(replays, Recording::kReplays)) {
      out->replays.push_back(operation(slot, (slot.tag & 1) != 0, clock));
      RankRecording::Operation& op = out->replays.back();
      op.position = std::min<uint64_t>(slot.tag >> 1, kLargest);
      op.tag = op.received = 0;
    }
    return out;
  }

 private:
  void readChoices(uint64_t count) {
    choices_.resize(count);
    if (count > 0) {
      readAt(fd_, base_ + Recording::kHeaderBytes, choices_.data(), count * sizeof(RecordedChoice));
    }
  }

  void readLinks(RankRecording& out, uint64_t readOfEach) const {
    struct Copy {
      uint64_t peer, transport, sent, arrived, busyNanos, read, copied, inMessages;
    };
    static_assert(sizeof(Copy) == sizeof(RecordedLink));
    Copy links[Recording::kLinks];
    readAt(fd_, base_ + Recording::kHeaderBytes + Recording::kChoicesBytes, links, sizeof links);
    for (const Copy& copy : links) {
      const int peer = bounded(copy.peer, out.size) - 1;
      if (peer < 0 || peer == out.rank) continue;
      RankRecording::Link link;
      link.peer = peer;
      link.transport = static_cast<RankRecording::Link::Transport>(std::min<uint64_t>(
          copy.transport, uint64_t(RankRecording::Link::Transport::SharedMemory)));
      link.sent = std::min<uint64_t>(copy.sent, kLargest);
      const auto word = [](uint64_t value) { return std::min<uint64_t>(value, kLargest / 8); };
      link.copied = word(copy.copied);
      link.received = link.copied + word(copy.read) + word(copy.inMessages);
      if (link.transport == RankRecording::Link::Transport::SharedMemory) {
        link.received += readOfEach;
      }
      link.arrived = std::min<uint64_t>(copy.arrived, kLargest);
      link.busy = static_cast<int64_t>(std::min<uint64_t>(copy.busyNanos, kLargest));
      out.links.push_back(link);
    }
  }

  /// Three copies of a ring. A slot counts whose version is the same in the first and in the last:
  /// versions never come again, so that in between, when the second was made, nobody rewrote it.
  /// Returns those by position.
  std::vector<SlotCopy> ring(uint64_t at, uint64_t capacity) const {
    std::vector<SlotCopy> first(capacity), slots(capacity), last(capacity), whole;
    for (auto* copy : {&first, &slots, &last}) {
      readAt(fd_, at, copy->data(), capacity * sizeof(SlotCopy));
    }
    for (uint64_t i = 0; i < capacity; ++i) {
      const uint64_t version = first[i].version;
      if (version == 0 || version != last[i].version) continue;
      if ((version - 1) % capacity != i || version > static_cast<uint64_t>(kLargest)) continue;
      whole.push_back(slots[i]);
      whole.back().version = version;
    }
    std::sort(whole.begin(), whole.end(),
              [](const SlotCopy& a, const SlotCopy& b) { return a.version < b.version; });
    return whole;
  }

  RankRecording::Operation operation(const SlotCopy& s, bool isMessage,
                                     const TickClock& clock) const {
    constexpr int kMost = 1 << 24;
    RankRecording::Operation op;
    op.position = s.version - 1;
    op.isMessage = isMessage;
    op.what = s.what;
    op.count = std::min<uint64_t>(s.count, kLargest);
    op.bytes = std::min<uint64_t>(s.bytes, kLargest);
    if (isMessage) {
      op.tag = std::min<uint64_t>(s.tag, UINT32_MAX);
    } else {
      op.received = std::min<uint64_t>(s.tag, kLargest);
    }
    const auto choice = static_cast<uint32_t>(s.choice);
    if (choice > 0 && choice <= choices_.size()) {
      op.algorithm = textOf(choices_[choice - 1].algorithm);
      op.why = textOf(choices_[choice - 1].why);
    }
    op.prepared = clock.duration(s.choice >> kPreparedShift << kPreparedUnit);
    op.called = clock.at(s.calledAt);
    op.started = clock.at(s.startedAt);
    op.first = clock.at(s.firstAt);
    op.ended = clock.at(s.endedAt);
    op.waits = s.waitingFor != 0;
    op.waitsFor = std::max(bounded(s.waitingFor, kMost) - 2, -1);
    op.waitsSince = op.waits ? clock.at(s.waitingSince) : 0;
    op.waited = clock.duration(s.waited);
    op.longestWait = clock.duration(s.longestWait);
    op.longestFor = std::max(bounded(s.longestFor, kMost) - 2, -1);
    op.failedWith = failureKindOf(s.failedWith);
    return op;
  }

  const int fd_;
  const uint64_t base_;
  alignas(64) std::byte header_[sizeof(RecordingHeader)];
  std::vector<RecordedChoice> choices_;
};

/// Where the ranks of such memory record, and the number of its communicator.
struct RecordingLayout {
  uint64_t group = 0;
  std::vector<uint64_t> offsets;
};

std::optional<RecordingLayout> layoutOf(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw systemError("fstat", errno);
  const auto size = static_cast<uint64_t>(std::max<off_t>(status.st_size, 0));
  if (size < Recording::bytesFor(1)) return std::nullopt;
  uint64_t footer[3];
  static_assert(sizeof footer == sizeof(RecordingFooter));
  readAt(fd, size - Recording::kPage, footer, sizeof footer);
  if (footer[0] != RecordingFooter::kMagic) return std::nullopt;
  const uint64_t ranks = footer[1];
  if (ranks < 1 || ranks > kMostRanks) return std::nullopt;
  const uint64_t bytes = Recording::bytesFor(static_cast<int>(ranks));
  if (bytes > size) return std::nullopt;
  RecordingLayout layout;
  layout.group = footer[2];
  for (uint64_t r = 0; r < ranks; ++r) {
    layout.offsets.push_back(size - bytes + r * Recording::kRankBytes);
  }
  return layout;
}

}  // namespace

void readAt(int fd, uint64_t offset, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw systemError("reading a recording", errno);
    if (got == 0) throw Error(ErrorKind::System, "a recording ends too early");
    at += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

std::optional<GroupRecording> readRecording(int fd) {
  const auto layout = layoutOf(fd);
  if (!layout) return std::nullopt;
  GroupRecording out;
  out.group = layout->group;
  for (const uint64_t offset : layout->offsets) {
    if (auto rank = RankReader(fd, offset).read()) out.ranks.push_back(std::move(*rank));
  }
  return out;
}

std::vector<RecordingPart> recordingParts(int fd) {
  std::vector<RecordingPart> parts;
  const auto layout = layoutOf(fd);
  if (!layout) return parts;
  for (const uint64_t offset : layout->offsets) {
    if (const auto about = RankReader(fd, offset).about()) {
      parts.push_back({about->rank, offset, about->hasLeft});
    }
  }
  return parts;
}

}  // namespace ctran
