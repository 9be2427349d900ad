#include <string>
#include <vector>

#include "tests/gpu/litmus/gpus.h"
#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"

namespace litmus {
namespace {

struct Counts {  // as in kernels.cu
  uint64_t rounds, observed, torn, lineTorn, stale, timedOut;
};

// Where things lie in every GPU's memory.
constexpr size_t kData = 0;
constexpr size_t kFlags = 32 << 20;
constexpr size_t kAcks = 40 << 20;
constexpr size_t kCounts = 48 << 20;
constexpr uint64_t kLimitNs = 1500000000;

void reset(Gpus& gpus) {
  for (int i = 0; i < gpus.count(); ++i) gpus.clear(i, 0, Gpus::kBytes);
}

Counts total(Gpus& gpus) {
  Counts sum{};
  for (int i = 0; i < gpus.count(); ++i) {
    const Counts c = fetch<Counts>(gpus[i], gpus.at(i, kCounts), 1)[0];
    sum.rounds += c.rounds;
    sum.observed += c.observed;
    sum.torn += c.torn;
    sum.lineTorn += c.lineTorn;
    sum.stale += c.stale;
    sum.timedOut += c.timedOut;
  }
  return sum;
}

const char* const kStoreNames[] = {
    "st.volatile.v4.u32", "st.relaxed.sys.v4.u32",           "st.relaxed.sys.b128",
    "st.weak.v4.u32",     "2x st.relaxed.sys.u64 (control)", "st.relaxed.sys.u64",
    "st.volatile.v2.u32"};
const char* const kLoadNames[] = {"ld.volatile.v4.u32",  "ld.relaxed.sys.v4.u32",
                                  "ld.relaxed.sys.b128", "2x ld.relaxed.sys.u64 (control)",
                                  "ld.relaxed.sys.u64",  "ld.volatile.v2.u32"};

/// Every GPU writes into its neighbour (`distance` on) while the owner reads.
void tearing(Gpus& gpus, int storeKind, int loadKind, int distance) {
  constexpr unsigned kBlocks = 24, kThreads = 256, kRounds = 60000;
  reset(gpus);
  const double start = secondsNow();
  for (int i = 0; i < gpus.count(); ++i) {
    check(gpus[i].launch("tearReader", kBlocks, kThreads, 1, gpus.at(i, kData), kRounds, loadKind,
                         kLimitNs, gpus.at(i, kCounts)),
          "tearReader");
  }
  for (int i = 0; i < gpus.count(); ++i) {
    const int target = (i + distance) % gpus.count();
    check(gpus[i].launch("tearWriter", kBlocks, kThreads, 2, gpus.at(target, kData), kRounds,
                         storeKind, kLimitNs),
          "tearWriter");
  }
  gpus.synchronize();
  const Counts c = total(gpus);
  Row("memory", "tearing")
      .add("store", kStoreNames[storeKind])
      .add("load", kLoadNames[loadKind])
      .add("where", distance == 0 ? "own memory" : "NVLink peer")
      .add("changes_seen", c.observed)
      .add("torn", c.torn)
      .add("lines_torn", c.lineTorn)
      .add("timed_out_warps", c.timedOut)
      .add("ms", (secondsNow() - start) * 1e3)
      .emit();
}

const char* const kAnnounceNames[] = {"barrier + st.release.sys",
                                      "barrier + fence.sys + st.relaxed",
                                      "barrier + st.relaxed (not guaranteed)",
                                      "barrier + st.release.gpu (not guaranteed)",
                                      "per thread st.release.sys",
                                      "per thread st.relaxed (not guaranteed)",
                                      "per thread volatile (not guaranteed)",
                                      "barrier + red.release.sys"};
const char* const kObserveNames[] = {
    "ld.acquire.sys, plain loads", "ld.relaxed + fence, plain loads",
    "ld.relaxed, plain loads (not guaranteed)", "ld.relaxed, relaxed loads (not guaranteed)"};

/// Every GPU i sends to i+1; the data lies with the reader, the writer or a third GPU. With `relay`
/// the flag goes through a third GPU.
void messagePassing(Gpus& gpus, int announce, int observe, const std::string& place, bool relay) {
  constexpr unsigned kBlocks = 24, kThreads = 256, kRounds = 3000;
  const int n = gpus.count();
  reset(gpus);
  const double start = secondsNow();
  for (int i = 0; i < n; ++i) {
    const int reader = (i + 1) % n;
    const int third = (i + 2) % n;
    const int data = place == "reader" ? reader : place == "writer" ? i : third;
    const DevicePtr ack = gpus.at(i, kAcks);
    const DevicePtr firstFlag =
        relay ? gpus.at(third, kFlags + (4 << 20)) : gpus.at(reader, kFlags);
    check(gpus[i].launch("mpWriter", kBlocks, kThreads, 1, gpus.at(data, kData), firstFlag, ack,
                         kRounds, announce, kLimitNs, gpus.at(i, kCounts)),
          "mpWriter");
    if (relay) {
      check(gpus[third].launch("mpRelay", kBlocks, 1, 0, firstFlag, gpus.at(reader, kFlags),
                               kThreads, kRounds, kLimitNs, gpus.at(third, kCounts)),
            "mpRelay");
    }
    check(gpus[reader].launch("mpReader", kBlocks, kThreads, 2, gpus.at(data, kData),
                              gpus.at(reader, kFlags), ack, kRounds, announce, observe, kLimitNs,
                              gpus.at(reader, kCounts)),
          "mpReader");
  }
  gpus.synchronize();
  const Counts c = total(gpus);
  Row("memory", relay ? "message passing over a third GPU" : "message passing")
      .add("announce", kAnnounceNames[announce])
      .add("observe", kObserveNames[observe])
      .add("data_at", place)
      .add("rounds", c.rounds)
      .add("stale_words", c.stale)
      .add("timed_out_blocks", c.timedOut)
      .add("ms", (secondsNow() - start) * 1e3)
      .emit();
}

void pingPong(Gpus& gpus, int kind, unsigned epoch, unsigned rounds, int a, int b) {
  static const char* const kNames[] = {"st.relaxed / ld.relaxed u32", "st.release / ld.acquire u32",
                                       "b128 packet", "volatile v4 packet",
                                       "red.release.add / ld.acquire"};
  const Driver& driver = Driver::get();
  Gpu& gpu = gpus[a];
  reset(gpus);
  if (kind == 4) {
    for (int i : {a, b}) put(gpus[i], gpus.at(i, kFlags), &epoch, sizeof epoch);
  }
  gpu.use();
  Event begin = nullptr, end = nullptr;
  check(driver.eventCreate(&begin, 0), "cuEventCreate");
  check(driver.eventCreate(&end, 0), "cuEventCreate");
  check(gpus[b].launch("pingPong", 1, 1, 0, gpus.at(b, kFlags), gpus.at(a, kFlags), epoch, rounds,
                       kind, false, kLimitNs, gpus.at(b, kCounts)),
        "pingPong");
  gpu.use();
  check(driver.eventRecord(begin, gpu.stream(0)), "cuEventRecord");
  check(gpu.launch("pingPong", 1, 1, 0, gpus.at(a, kFlags), gpus.at(b, kFlags), epoch, rounds, kind,
                   true, kLimitNs, gpus.at(a, kCounts)),
        "pingPong");
  check(driver.eventRecord(end, gpu.stream(0)), "cuEventRecord");
  gpus.synchronize();
  float ms = 0;
  check(driver.eventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
  const Counts c = total(gpus);
  Row row("memory", epoch == 0 ? "one-way latency" : "epochs across the wrap");
  row.add("how", kNames[kind]).add("from", a).add("to", b);
  row.add("rounds", c.rounds).add("of", 2 * rounds);
  if (epoch == 0) row.add("one_way_ns", ms * 1e6 / (2.0 * rounds));
  if (epoch != 0) row.add("start", epoch);
  row.add("timed_out", c.timedOut).emit();
}

void costs(Gpus& gpus) {
  for (unsigned outstanding : {0u, 8u, 64u}) {
    if (gpus.count() == 1) break;  // nobody to store to
    reset(gpus);
    check(gpus[0].launch("fenceCost", 1, 32, 0, gpus.at(1, kData), outstanding, 500u,
                         gpus.at(0, kCounts)),
          "fenceCost");
    gpus.synchronize();
    const auto cycles = fetch<uint64_t>(gpus[0], gpus.at(0, kCounts), 2);
    Row("memory", "fence.acq_rel.sys after remote stores")
        .add("outstanding_per_thread", outstanding)
        .add("store_cycles", cycles[0])
        .add("fence_cycles", cycles[1])
        .emit();
  }
  MappedHostMemory host(0, 4096);
  reset(gpus);
  check(
      gpus[0].launch("readCosts", 1, 1, 0, host.device(), gpus.at(0, kFlags), gpus.at(0, kCounts)),
      "readCosts");
  gpus.synchronize();
  const auto v = fetch<uint64_t>(gpus[0], gpus.at(0, kCounts), 4);
  Row("memory", "what a look costs")
      .add("globaltimer_tick_ns", v[0])
      .add("globaltimer_cycles", v[1])
      .add("mapped_host_word_cycles", v[2])
      .add("local_relaxed_load_cycles", v[3])
      .emit();
}

}  // namespace

void memoryModel(const std::string& kernels) {
  Gpus gpus(kernels);
  const int n = gpus.count();
  Row("memory", "start").add("gpus", n).add("architecture", architecture(0)).emit();
  gpus[0].use();
  costs(gpus);
  if (n > 1) {
    for (int kind = 0; kind < 5; ++kind) pingPong(gpus, kind, 0, 10000, 0, 1);
    for (int b = 2; b < n; ++b) pingPong(gpus, 2, 0, 10000, 0, b);
    for (int kind : {0, 1, 2, 3}) pingPong(gpus, kind, 0xffffff00u, 1000, 0, n - 1);
  }
  for (int distance : {1, 0}) {
    if (distance == 1 && n == 1) continue;
    const int pairs[][2] = {{4, 2}, {2, 3}, {0, 0}, {1, 1}, {2, 2}, {3, 2}, {0, 2}, {5, 4}, {6, 5}};
    for (auto [store, load] : pairs) tearing(gpus, store, load, distance);
  }
  if (n > 1) {
    const std::vector<std::pair<int, int>> ways = {{0, 0}, {1, 0}, {1, 1}, {7, 0}, {4, 0}, {3, 0},
                                                   {2, 0}, {2, 3}, {0, 2}, {5, 0}, {5, 3}, {6, 3}};
    for (auto [announce, observe] : ways) messagePassing(gpus, announce, observe, "reader", false);
    for (auto [announce, observe] : ways) {
      if (announce <= 3 || announce == 7) messagePassing(gpus, announce, observe, "writer", false);
    }
  }
  if (n > 2) {
    for (int announce : {0, 1, 2}) messagePassing(gpus, announce, 0, "third", false);
    messagePassing(gpus, 0, 0, "reader", true);
    messagePassing(gpus, 0, 0, "writer", true);
  }
}

}  // namespace litmus
