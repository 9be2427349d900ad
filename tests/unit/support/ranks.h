// Ranks to test with: threads of this process, which is what the race detector sees, or processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/unix_socket.h"

namespace ctran::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
inline constexpr bool kSanitizer = kThreadSanitizer || kAddressSanitizer;

/// A guard against hangs, far above what anything takes, also on a busy machine.
inline constexpr std::chrono::seconds kGuard{120};

/// A deadline that passes in a test, and within which all others come to where they wait with it,
/// also on a busy machine.
inline constexpr std::chrono::milliseconds kArrival{1500};

/// When the guard ends.
Deadline later();

/// Whether everything is to be tested, however long it takes.
bool testsEverything();

/// Options of a communicator over `store`, with the guard as its timeout.
CommunicatorOptions optionsFor(int rank, int size, std::shared_ptr<Store> store,
                               const std::string& name = "test");

/// A sum in place.
Collective allReduce(std::vector<int32_t>& data);

/// A call with memory of its own for any role in it, for which nobody can do without rank `root`.
struct Call {
  Call(CollectiveKind kind, size_t count, int size, int root);
  std::vector<std::byte> data;
  Collective collective;
};

/// All ranks tell each other what rank they are.
void expectWorks(Communicator& communicator);

/// Calls `body(rank)` on `size` threads and joins them; an exception is a failure of the test.
void runThreads(int size, const std::function<void(int)>& body);

/// The same with a communicator per rank, which ends with the body. With `ranksPerHost` the ranks
/// count as on different hosts, so many on each.
void runRanks(int size, const std::function<void(Communicator&)>& body, int ranksPerHost = 0);

/// Calls a collective, one without listed blocks, on a few elements, over and over, so that ranks
/// come at about the same time; fewer times under a sanitizer. How many elements of this rank's
/// results were wrong.
int wrongOfSmallCalls(Communicator& communicator, CollectiveKind kind, int calls);

/// Waits until each of `ranks`, which share memory with this one, is in its collective `number`.
void awaitBegun(Communicator& communicator, const std::vector<int>& ranks, uint64_t number);

/// The error that `body` throws; fails the test if it throws none.
Error errorOf(const std::function<void()>& body);

void* map(size_t bytes);
void unmap(void* memory, size_t bytes);

/// Memory that forked ranks share with the test; zeros.
template <class T>
class Shared {
 public:
  Shared() : memory_(map(sizeof(T)), [](void* memory) { unmap(memory, sizeof(T)); }) {}
  T* operator->() const { return static_cast<T*>(memory_.get()); }
  T& operator*() const { return *static_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

/// Ranks as processes. Each calls `body(rank)`; what it expects, and does not throw, decides how it
/// exits. Gated out of race-detector builds, which do not survive a fork with threads.
class ForkedRanks {
 public:
  ForkedRanks(int size, const std::function<void(int)>& body);
  ~ForkedRanks();  ///< kills what still runs

  pid_t pid(int rank) const { return pids_[rank]; }
  void kill(int rank, int signal) const;
  /// Waits for all; each rank has to exit without a failure, but for `killed`, which have to have
  /// been killed.
  void expectSuccess(const std::vector<int>& killed = {});

 private:
  std::vector<pid_t> pids_;
};

/// Waits until the only, or main, thread of a process sleeps.
void awaitSleep(pid_t pid);
/// Waits until a process is stopped, as by SIGSTOP.
void awaitStop(pid_t pid);

/// Waits until the flag is set.
void awaitFlag(const std::atomic<bool>& flag);

/// Where ranks, and the test if it counts itself, wait for each other once.
struct Barrier {
  void arrive(int total);
  std::atomic<int> arrived;
  std::atomic<bool> go;
};

/// A temporary directory that is removed with its files in the end, by the process that made it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  pid_t owner_;
};

/// A communicator of ranks that meet in `directory`.
std::shared_ptr<Communicator> join(const TemporaryDirectory& directory, int rank, int size,
                                   const std::string& name = "test");

}  // namespace ctran::testing
