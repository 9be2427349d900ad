#include "tests/scale/account.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace ctran::testing {
namespace {

/// What this process has of memory, shared pages by the share of it.
double residentKilobytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != "Pss:") continue;
    double kilobytes = 0;
    file >> kilobytes;
    return kilobytes;
  }
  return 0;
}

double heapKilobytes() {
  const auto info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / 1024;
}

}  // namespace

Stage& Stage::make(const Arguments& arguments) {
  if (arguments.processes > kMaxProcesses) throw std::runtime_error("too many processes");
  const size_t bytes = sizeof(Stage) + kParts * sizeof(Cost) * static_cast<size_t>(arguments.ranks);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
  auto* const stage = new (memory) Stage();
  stage->ranks_ = arguments.ranks;
  stage->processes_ = arguments.processes;
  return *stage;
}

Cost* Stage::costs() const { return reinterpret_cast<Cost*>(const_cast<Stage*>(this) + 1); }

bool Stage::waitFor(uint64_t meeting) const {
  while (met_.load() < meeting * static_cast<uint64_t>(ranks_)) {
    if (failed.load()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return !failed.load();
}

void Stage::meet() {
  const uint64_t before = met_.fetch_add(1);
  if (!waitFor(before / static_cast<uint64_t>(ranks_) + 1)) {
    throw std::runtime_error("another rank has failed");
  }
}

void Stage::watchMemory(int process, int ranks) {
  // Meetings: all threads are there; communicators are made; memory has been looked at.
  if (!waitFor(1)) return;
  const double before = residentKilobytes(), heapBefore = heapKilobytes();
  looked_.fetch_add(1);
  if (!waitFor(2)) return;
  kilobytes_[static_cast<size_t>(process)] = (residentKilobytes() - before) / ranks;
  heap_[static_cast<size_t>(process)] = (heapKilobytes() - heapBefore) / ranks;
  looked_.fetch_add(1);
}

void Stage::awaitLook(int number) {
  while (looked_.load() < number * processes_ && !failed.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Stage::print(const char* what, Part part) const {
  const Cost* const all = costs() + static_cast<int>(part) * ranks_;
  const auto line = [&](const char* name, const std::function<double(const Cost&)>& of) {
    double most = 0, sum = 0;
    for (int r = 0; r < ranks_; ++r) {
      most = std::max(most, of(all[r]));
      sum += of(all[r]);
    }
    std::printf("%-8s %-12s %12.6g %12.6g %12.6g\n", what, name, most, sum / ranks_, of(all[0]));
  };
  line("seconds", [](const Cost& cost) { return cost.seconds; });
  line("messages", [](const Cost& cost) { return static_cast<double>(cost.messages); });
  line("bytes", [](const Cost& cost) { return static_cast<double>(cost.bytes); });
  line("store calls", [](const Cost& cost) { return static_cast<double>(cost.storeCalls); });
}

void Stage::report(const Arguments& arguments) const {
  std::printf("%d ranks, %d to a host, in %d processes; split into %d groups\n\n", ranks_,
              arguments.perHost, processes_, arguments.groups);
  std::printf("%-8s %-12s %12s %12s %12s\n", "", "of a rank", "most", "mean", "rank 0");
  print("create", Part::Create);
  print("split", Part::Split);
  print("fail", Part::Fail);
  const auto* const end = kilobytes_.data() + processes_;
  std::printf(
      "\nmemory of a rank: %.0f KB (mean of the process with most), of that heap: %.0f KB\n",
      *std::max_element(kilobytes_.data(), end),
      *std::max_element(heap_.data(), heap_.data() + processes_));
}

}  // namespace ctran::testing
