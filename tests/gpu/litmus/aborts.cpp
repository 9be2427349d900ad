#include <algorithm>
#include <atomic>
#include <thread>

#include "ctran/gpu/device/team.cuh"
#include "tests/gpu/litmus/gpus.h"
#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"

namespace litmus {
namespace {

using ctran::device::Control;
using ctran::device::Report;
using ctran::device::State;
using ctran::device::Team;

struct Spinners {
  explicit Spinners(Gpus& gpus) : gpus(gpus), words(0, 4096 * gpus.count()) {
    for (int i = 0; i < gpus.count(); ++i) {
      auto* control = reinterpret_cast<Control*>(static_cast<char*>(words.host()) + 4096 * i);
      *control = {};
      auto* report = reinterpret_cast<Report*>(control + 1);
      *report = {};
      const DevicePtr onDevice = words.device() + 4096 * i;
      Team team{};
      team.rank = i;
      team.size = gpus.count() > 1 ? gpus.count() : 2;
      team.state = reinterpret_cast<State*>(gpus.at(i, 0));
      team.control = reinterpret_cast<const Control*>(onDevice);
      team.report = reinterpret_cast<Report*>(onDevice + sizeof(Control));
      teams.push_back(team);
      controls.push_back(control);
      reports.push_back(report);
      gpus.clear(i, 0, 1 << 20);
    }
  }

  void launch(int used, unsigned blocks, unsigned threads) {
    for (int i = 0; i < used; ++i) {
      check(gpus[i].launch("spinUntilAborted", blocks, threads, 0, teams[i], gpus.at(i, 1 << 16)),
            "spinUntilAborted");
    }
  }

  Gpus& gpus;
  MappedHostMemory words;
  std::vector<Team> teams;
  std::vector<Control*> controls;
  std::vector<Report*> reports;
};

void abortLatency(Gpus& gpus, int used, unsigned blocks, unsigned threads) {
  const Driver& driver = Driver::get();
  std::vector<double> micros;
  bool reported = true;
  for (int repeat = 0; repeat < 12; ++repeat) {
    Spinners spinners(gpus);
    for (Control* control : spinners.controls)
      control->timeoutNs = 2000000000;  // of the test itself
    spinners.launch(used, blocks, threads);
    const double launched = secondsNow();
    while (secondsNow() - launched <
           2e-3) {  // they spin by now; if not, only the first look differs
    }
    const double start = secondsNow();
    for (int i = 0; i < used; ++i) std::atomic_ref<uint32_t>(spinners.controls[i]->abort).store(1);
    for (int i = 0; i < used; ++i) {
      gpus[i].use();
      check(driver.streamSynchronize(gpus[i].stream(0)), "after an abort");
    }
    micros.push_back((secondsNow() - start) * 1e6);
    for (int i = 0; i < used; ++i) {
      const uint32_t next = (i + 1) % spinners.teams[i].size;
      reported = reported && spinners.reports[i]->state == ctran::device::kAborted &&
                 spinners.reports[i]->waitedFor[next] == 7;
    }
    for (int i = 0; i < used; ++i) check(gpus[i].launch("empty", 1, 32, 0), "after an abort");
    gpus.synchronize();
  }
  Row("abort", "abort of a spinning kernel")
      .add("gpus", used)
      .add("blocks", blocks)
      .add("threads", threads)
      .add("median_us", median(micros))
      .add("worst_us", *std::max_element(micros.begin(), micros.end()))
      .add("reported", reported ? "yes" : "NO")
      .add("context_usable_after", "yes")
      .emit();
}

void timeouts(Gpus& gpus, unsigned blocks, unsigned threads) {
  const Driver& driver = Driver::get();
  Spinners spinners(gpus);
  spinners.controls[0]->timeoutNs = 5000000;
  const double start = secondsNow();
  spinners.launch(1, blocks, threads);
  gpus[0].use();
  check(driver.streamSynchronize(gpus[0].stream(0)), "after a timeout");
  Row("abort", "timeout of 5 ms in the kernel")
      .add("blocks", blocks)
      .add("threads", threads)
      .add("ended_after_ms", (secondsNow() - start) * 1e3)
      .add("state_is_timed_out",
           spinners.reports[0]->state == ctran::device::kTimedOut ? "yes" : "NO")
      .emit();
}

}  // namespace

void aborts(const std::string& kernels) {
  Gpus gpus(kernels);
  for (auto [blocks, threads] : {std::pair{1u, 32u}, {16u, 512u}, {128u, 1024u}}) {
    abortLatency(gpus, 1, blocks, threads);
    if (gpus.count() > 1) abortLatency(gpus, gpus.count(), blocks, threads);
    timeouts(gpus, blocks, threads);
  }
}

}  // namespace litmus
