#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctran/trace/recording.h"

namespace ctran {

/// What one rank has recorded, as somebody else reads it. Times are nanoseconds of the host's
/// CLOCK_MONOTONIC; 0: has not happened.
struct RankRecording {
  struct Operation {
    uint64_t position = 0;  ///< in its ring, from 0
    bool isMessage = false;
    uint64_t what = 0, count = 0, bytes = 0, tag = 0;
    uint64_t received = 0;       ///< bytes for this rank, of an exchange whose blocks differ
    int64_t prepared = 0;        ///< nanoseconds in which it compiled, registered or mapped
    std::string algorithm, why;  ///< empty: not known
    int64_t called = 0, started = 0, first = 0, ended = 0;
    bool waits = false;  ///< now
    int waitsFor = -1;   ///< -1: for one of several
    int64_t waitsSince = 0;
    int64_t waited = 0, longestWait = 0;
    int longestFor = -1;
    int failedWith = -1;  ///< ErrorKind
  };

  /// What goes between it and one other rank, see RecordedLink.
  struct Link {
    using Transport = RecordedLink::Transport;
    int peer = 0;
    Transport transport = Transport::Tcp;
    uint64_t sent = 0;      ///< bytes to the peer
    uint64_t arrived = 0;   ///< bytes that its host has got over TCP,
    int64_t busy = 0;       ///< and how long some of them were on their way
    uint64_t received = 0;  ///< bytes from the peer, of this host
    uint64_t copied = 0;    ///< of those, read from the peer's own memory
  };

  int rank = 0, size = 0;
  int64_t pid = 0;
  uint64_t processStart = 0;
  bool hasLeft = false;
  int64_t realtimeOffset = 0;  ///< CLOCK_REALTIME - CLOCK_MONOTONIC
  int64_t timeout = 0;
  uint64_t collectives = 0, messages = 0, queued = 0;  ///< how many were started, or wait to be
  uint64_t replayed = 0;                               ///< how many replays of operations were seen
  bool tellsReplays = false;                           ///< see RecordingHeader
  int failedWith = -1;                                 ///< ErrorKind
  bool takesSettings = false;
  bool isOff = false;  ///< operations are counted alone
  std::string name, host, failure;
  std::vector<int> blames;  ///< ranks that the failure names
  int64_t since = 0;        ///< when it began
  std::vector<Link> links;
  std::vector<Operation> operations;  ///< those that are remembered, by position
  /// Replays of captured operations, in the order of their begin. `position`: of the call.
  std::vector<Operation> replays;
};

struct GroupRecording {
  uint64_t group = 0;
  std::vector<RankRecording> ranks;  ///< those that have come
};

/// Reads the memory of a communicator of this host, whose ranks go on meanwhile; nothing of it is
/// trusted. Nothing if it is no such memory. Throws Error(System) if it cannot be read.
std::optional<GroupRecording> readRecording(int fd);

/// Copies bytes of such memory. Throws Error(System).
void readAt(int fd, uint64_t offset, void* to, size_t bytes);

/// Where a rank records in such memory.
struct RecordingPart {
  int rank = 0;
  uint64_t offset = 0;
  bool hasLeft = false;
};
/// Of those that have come; empty if it is no such memory. Throws Error(System).
std::vector<RecordingPart> recordingParts(int fd);

}  // namespace ctran
