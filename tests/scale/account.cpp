#include "tests/scale/account.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "benchmarks/cpp/resident.h"
#include "ctran/os/futex.h"
#include "ctran/os/traffic.h"

namespace ctran::testing {
namespace {

double heapKilobytes() {
  const auto info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / 1024;
}

}  // namespace

Stage& Stage::make(const Arguments& arguments) {
  if (arguments.processes > kMaxProcesses) throw std::runtime_error("too many processes");
  const size_t bytes = sizeof(Stage) + sizeof(Rank) * static_cast<size_t>(arguments.ranks);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
  auto* const stage = new (memory) Stage();
  stage->ranks_ = arguments.ranks;
  stage->processes_ = arguments.processes;
  stage->seconds_ = arguments.seconds;
  for (int r = 0; r < arguments.ranks; ++r) new (stage->ranks() + r) Rank();
  return *stage;
}

void Stage::moved() {
  moves_.fetch_add(1);
  futexWake(moves_);
}

void Stage::fail() {
  failed_.store(true);
  moved();
}

/// Throws with what `who` says if that takes too long.
void Stage::await(const std::function<bool()>& holds, const std::function<std::string()>& who) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::seconds(seconds_);
  while (true) {
    const uint32_t seen = moves_.load();
    if (failed_.load()) throw std::runtime_error("another rank has failed");
    if (holds()) return;
    const auto left = deadline - Clock::now();
    if (left.count() <= 0) throw std::runtime_error(who());
    futexWait(moves_, seen, left);
  }
}

std::string Stage::missingAt(uint32_t barrier) const {
  int first = -1, count = 0;
  for (int r = 0; r < ranks_; ++r) {
    if (ranks()[r].barriers.load() >= barrier) continue;
    if (first < 0) first = r;
    ++count;
  }
  if (count == 0) return "a process has not looked at itself";
  return "rank " + std::to_string(first) + " has not come in time, and " +
         std::to_string(count - 1) + " others";
}

void Stage::meet(int rank) {
  const uint32_t barrier = ranks()[rank].barriers.fetch_add(1) + 1;
  if (come_.fetch_add(1) + 1 == static_cast<uint64_t>(barrier) * ranks_) moved();
  await([&] { return looked_.load() >= static_cast<uint64_t>(barrier) * processes_; },
        [&] { return missingAt(barrier); });
}

void Stage::watch(int process) {
  for (uint32_t barrier = 1; barrier <= kBarriers; ++barrier) {
    // A rank that is missing is named by those that wait for it.
    try {
      await([&] { return come_.load() >= static_cast<uint64_t>(barrier) * ranks_; },
            [&] { return missingAt(barrier); });
    } catch (const std::runtime_error&) {
      return;
    }
    looks_[static_cast<size_t>(process)][barrier - 1] = lookNow();
    if (looked_.fetch_add(1) + 1 == static_cast<uint64_t>(barrier) * processes_) moved();
  }
}

Stage::Look Stage::lookNow() const {
  return {traffic().messages.load(), traffic().bytes.load(), bench::residentKilobytes(),
          heapKilobytes()};
}

std::atomic<uint32_t>& Stage::changesOf(const std::string& key) {
  return changes_[std::hash<std::string>()(key) % changes_.size()];
}

/// What the processes took for a part, per rank.
double Stage::perRank(Part part, const std::function<double(const Look&)>& of) const {
  const size_t before = 2 * static_cast<size_t>(part);
  double sum = 0;
  for (size_t p = 0; p < static_cast<size_t>(processes_); ++p) {
    sum += of(looks_[p][before + 1]) - of(looks_[p][before]);
  }
  return sum / ranks_;
}

void Stage::print(const char* what, Part part) const {
  const auto line = [&](const char* name, const std::function<double(const Cost&)>& of,
                        std::function<double(const Look&)> ofProcess = nullptr) {
    double most = 0, sum = 0;
    for (int r = 0; r < ranks_; ++r) {
      const double own = of(ranks()[r].costs[static_cast<size_t>(part)]);
      most = std::max(most, own);
      sum += own;
    }
    const double mean = ofProcess ? perRank(part, ofProcess) : sum / ranks_;
    std::printf("%-8s %-12s %12.6g %12.6g %12.6g\n", what, name, mean, most,
                of(ranks()[0].costs[static_cast<size_t>(part)]));
  };
  line("seconds", [](const Cost& cost) { return cost.seconds; });
  line(
      "messages", [](const Cost& cost) { return static_cast<double>(cost.messages); },
      [](const Look& look) { return static_cast<double>(look.messages); });
  line(
      "bytes", [](const Cost& cost) { return static_cast<double>(cost.bytes); },
      [](const Look& look) { return static_cast<double>(look.bytes); });
  line("store calls", [](const Cost& cost) { return static_cast<double>(cost.storeCalls); });
}

void Stage::report(const Arguments& arguments) const {
  std::printf("%d ranks, %d to a host, in %d processes; split into %d groups\n\n", ranks_,
              arguments.perHost, processes_, arguments.groups);
  std::printf("%-8s %-12s %12s %12s %12s\n", "", "of a rank", "mean", "most", "rank 0");
  print("create", Part::Create);
  print("split", Part::Split);
  print("fail", Part::Fail);
  std::printf("\nmemory that a communicator takes per rank: %.0f KB, of that heap: %.0f KB\n",
              perRank(Part::Create, [](const Look& look) { return look.kilobytes; }),
              perRank(Part::Create, [](const Look& look) { return look.heapKilobytes; }));
}

}  // namespace ctran::testing
