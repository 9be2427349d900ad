// ctran_many_ranks: communicators of very many ranks, as threads of a few processes, and what they
// cost each rank. See README.md.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/scale/account.h"
#include "tests/scale/life.h"

namespace ctran::testing {
namespace {

constexpr size_t kStackBytes = 512 << 10;

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s [--ranks N] [--per-host N] [--processes N] [--groups N] [--seconds N]\n",
               program);
  std::exit(2);
}

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string word = words[i];
    const int value = std::atoi(words[i + 1]);
    if (value < 1) usage(words[0]);
    if (word == "--ranks") {
      arguments.ranks = value;
    } else if (word == "--per-host") {
      arguments.perHost = value;
    } else if (word == "--processes") {
      arguments.processes = value;
    } else if (word == "--groups") {
      arguments.groups = value;
    } else if (word == "--seconds") {
      arguments.seconds = value;
    } else {
      usage(words[0]);
    }
  }
  if (count % 2 == 0 || arguments.ranks < 2) usage(words[0]);
  return arguments;
}

/// Whole hosts, so that the ranks of one are threads of one process.
std::vector<int> ranksOf(int process, const Arguments& arguments) {
  std::vector<int> ranks;
  for (int r = 0; r < arguments.ranks; ++r) {
    if (r / arguments.perHost % arguments.processes == process) ranks.push_back(r);
  }
  return ranks;
}

void* runThread(void* body) {
  (*static_cast<std::function<void()>*>(body))();
  return nullptr;
}

/// As std::thread, with a small stack: there are thousands.
pthread_t startSmallThread(std::function<void()>& body) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const int error = ::pthread_create(&thread, &attributes, runThread, &body);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) throw std::runtime_error("no thread: " + std::to_string(error));
  return thread;
}

int runProcess(int process, const Arguments& arguments, Stage& stage, const std::string& folder) {
  const std::vector<int> ranks = ranksOf(process, arguments);
  std::vector<std::function<void()>> bodies;
  for (const int rank : ranks) {
    bodies.emplace_back([&, rank] {
      try {
        live(rank, arguments, stage, folder);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        stage.fail();
      }
    });
  }
  std::vector<pthread_t> threads;
  for (auto& body : bodies) threads.push_back(startSmallThread(body));
  stage.watch(process);
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
  return stage.hasFailed() ? 1 : 0;
}

/// Raises the limit of descriptors as far as it goes, and returns it.
rlim_t allowDescriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

/// While the ranks of a host meet, each has descriptors of all of them; besides it has its own, and
/// connections, of two communicators.
int fewestProcesses(const Arguments& arguments, rlim_t limit) {
  constexpr rlim_t kOwn = 64;
  const rlim_t ofHost = static_cast<rlim_t>(arguments.perHost) * (arguments.perHost + kOwn);
  const rlim_t hosts = (arguments.ranks + arguments.perHost - 1) / arguments.perHost;
  const rlim_t inOne = std::max<rlim_t>(1, limit / ofHost);
  return static_cast<int>((hosts + inOne - 1) / inOne);
}

int run(Arguments arguments) {
  const rlim_t limit = allowDescriptors();
  if (arguments.processes == 0) arguments.processes = fewestProcesses(arguments, limit);
  std::string folder = (std::filesystem::temp_directory_path() / "ctran-scale-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder");
  // All ranks share these cores: a silent one is no sign of a lost host.
  ::setenv("CTRAN_TCP_LOST_MILLIS", "200000", 0);
  Stage& stage = Stage::make(arguments);
  std::vector<pid_t> children;
  for (int p = 0; p < arguments.processes; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::_exit(runProcess(p, arguments, stage, folder));
    }
    children.push_back(child);
  }
  bool works = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      works = false;
      stage.fail();
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (works) stage.report(arguments);
  return works ? 0 : 1;
}

}  // namespace
}  // namespace ctran::testing

int main(int count, char** words) {
  try {
    return ctran::testing::run(ctran::testing::parse(count, words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ctran_many_ranks: %s\n", error.what());
    return 1;
  }
}
