#include "tests/unit/support/ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/collective/signature.h"
#include "ctran/engine/communicator.h"
#include "tests/unit/support/cases.h"

namespace ctran::testing {
namespace {

/// True when the body ended as it should.
bool guarded(const std::function<void()>& body, const std::string& who) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    ADD_FAILURE() << who << " threw: " << error.what();
  } catch (...) {
    ADD_FAILURE() << who << " threw something";
  }
  return false;
}

void give(int64_t giveUp, const char* what) {
  if (nowNanos() > giveUp) {
    std::fprintf(stderr, "gave up waiting for %s\n", what);
    std::abort();
  }
  ::usleep(200);
}

int64_t guardFromNow() { return nowNanos() + std::chrono::nanoseconds(kGuard).count(); }

/// Waits for that state of /proc.
void awaitState(pid_t pid, char state, const char* what) {
  const int64_t giveUp = guardFromNow();
  while (true) {
    std::string text;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
    const size_t name = text.rfind(')');  // "pid (name) S ..."
    if (name != std::string::npos && text.size() > name + 2 && text[name + 2] == state) return;
    give(giveUp, what);
  }
}

}  // namespace

bool testsEverything() {
  const char* value = std::getenv("CTRAN_TEST_FULL");
  return value != nullptr && *value != 0 && std::string(value) != "0";
}

CommunicatorOptions optionsFor(int rank, int size, std::shared_ptr<Store> store,
                               const std::string& name) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.name = name;
  options.store = std::move(store);
  options.timeout = kGuard;
  return options;
}

std::shared_ptr<Communicator> join(const TemporaryDirectory& directory, int rank, int size,
                                   const std::string& name) {
  return Communicator::create(
      optionsFor(rank, size, std::make_shared<DirectoryStore>(directory.path()), name));
}

Deadline later() { return std::chrono::steady_clock::now() + kGuard; }

Collective allReduce(std::vector<int32_t>& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.type = DataType::Int32;
  c.count = data.size();
  c.input = reinterpret_cast<const std::byte*>(data.data());
  c.output = reinterpret_cast<std::byte*>(data.data());
  return c;
}

Call::Call(CollectiveKind kind, size_t count, int size, int root) : data(2 * count * size + 1) {
  collective.kind = kind;
  collective.type = DataType::UInt8;
  collective.count = count;
  collective.root = root;
  std::byte* const output = data.data() + count * size;
  collective.input = data.data();
  collective.output = output;
  if (kind == CollectiveKind::AllGatherV) collective.outputs.assign(size, {output, count});
  if (kind == CollectiveKind::ReduceScatterV) collective.inputs.assign(size, {data.data(), count});
  if (kind == CollectiveKind::AllToAllV) {
    collective.inputs.assign(size, {data.data(), count});
    collective.outputs.assign(size, {output, count});
    collective.count = 0;
  }
}

void expectWorks(Communicator& communicator) {
  std::vector<int32_t> ranks(communicator.size(), -1);
  const int32_t own = communicator.rank();
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.type = DataType::Int32;
  c.count = 1;
  c.input = reinterpret_cast<const std::byte*>(&own);
  c.output = reinterpret_cast<std::byte*>(ranks.data());
  communicator.run(c);
  for (int r = 0; r < communicator.size(); ++r) EXPECT_EQ(ranks[r], r);
}

void Barrier::arrive(int total) {
  if (++arrived == total) go = true;
  awaitFlag(go);
}

void runThreads(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&body, r] { guarded([&] { body(r); }, "rank " + std::to_string(r)); });
  }
  for (std::thread& thread : threads) thread.join();
}

void runRanks(int size, const std::function<void(Communicator&)>& body, int ranksPerHost) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(size, [&](int rank) {
    auto options = optionsFor(rank, size, store);
    if (ranksPerHost > 0) {
      options.hints["ctran::host"] = "host" + std::to_string(rank / ranksPerHost);
    }
    const auto communicator = Communicator::create(options);
    // The others must not wait for what this rank will not do.
    if (!guarded([&] { body(*communicator); }, "rank " + std::to_string(rank))) {
      communicator->abort("the test failed");
    }
    communicator->finalize();
  });
}

int wrongOfSmallCalls(Communicator& communicator, CollectiveKind kind, int calls) {
  using Kind = CollectiveKind;
  constexpr int kCount = 8;
  const int size = communicator.size();
  std::vector<int32_t> data(kCount * size), result(kCount * size);
  Collective c;
  c.kind = kind;
  c.type = DataType::Int32;
  c.count = kCount;
  c.input = reinterpret_cast<std::byte*>(data.data());
  c.output = reinterpret_cast<std::byte*>(result.data());
  const bool isRoot = communicator.rank() == c.root;
  const bool hasResult = isRoot || (kind != Kind::Reduce && kind != Kind::Gather);
  const bool hasBlocks = kind == Kind::AllGather || kind == Kind::AllToAll || kind == Kind::Gather;
  const auto end = result.begin() + (hasResult ? kCount * (hasBlocks ? size : 1) : 0);
  int wrong = 0;
  for (int i = 0; i < (kSanitizer ? calls / 20 : calls); ++i) {
    std::fill(data.begin(), data.end(), i);
    if (kind == Kind::Broadcast && isRoot) result = data;
    communicator.run(c);
    const int32_t expected = reduces(kind) ? size * i : i;
    wrong += static_cast<int>(
        std::count_if(result.begin(), end, [=](int32_t element) { return element != expected; }));
  }
  return wrong;
}

void awaitBegun(Communicator& communicator, const std::vector<int>& ranks, uint64_t number) {
  Board& board = communicator.core().board;
  const int64_t giveUp = guardFromNow();
  for (const int rank : ranks) {
    while (board.control(rank).begun.load() < kCreation + number) {
      give(giveUp, "another rank to come");
    }
  }
}

Error errorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorKind::System, "no error was thrown");
}

ForkedRanks::ForkedRanks(int size, const std::function<void(int)>& body) {
  std::fflush(nullptr);
  for (int r = 0; r < size; ++r) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork");
    if (pid == 0) {
      guarded([&] { body(r); }, "rank " + std::to_string(r));
      std::fflush(nullptr);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    pids_.push_back(pid);
  }
}

ForkedRanks::~ForkedRanks() {
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void ForkedRanks::kill(int rank, int signal) const { ::kill(pids_[rank], signal); }

void ForkedRanks::expectSuccess(const std::vector<int>& killed) {
  const int64_t giveUp = guardFromNow();
  for (size_t r = 0; r < pids_.size(); ++r) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(pids_[r], &status, WNOHANG)) == 0 && nowNanos() < giveUp) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (ended == 0) {
      ADD_FAILURE() << "rank " << r << " hangs";
      continue;  // the destructor kills it
    }
    pids_[r] = -1;
    if (std::find(killed.begin(), killed.end(), static_cast<int>(r)) != killed.end()) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "rank " << r;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << r << " ended with status " << status;
    }
  }
}

void awaitSleep(pid_t pid) { awaitState(pid, 'S', "a process to sleep"); }
void awaitStop(pid_t pid) { awaitState(pid, 'T', "a process to be stopped"); }

void awaitFlag(const std::atomic<bool>& flag) {
  const int64_t giveUp = guardFromNow();
  while (!flag.load()) give(giveUp, "a flag");
}

TemporaryDirectory::TemporaryDirectory()
    : path_((std::filesystem::temp_directory_path() / "ctran-test-XXXXXX").string()),
      owner_(::getpid()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (::getpid() == owner_) std::filesystem::remove_all(path_, ignored);
}

void* map(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  return memory;
}

void unmap(void* memory, size_t bytes) { ::munmap(memory, bytes); }

}  // namespace ctran::testing
