#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <thread>

#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"
#include "tests/gpu/litmus/reference.h"
#include "tests/gpu/litmus/world.h"

namespace litmus {
namespace {

constexpr unsigned kPoison = 0xa5c3f00d;

size_t elementsPerPacket(const Variant& variant) {
  return variant.payloadWords * 4 / elementSize(variant.element);
}

/// Whether the operation fits the slots of the world.
bool fits(const World& world, const Variant& variant, bool twoShot, size_t count) {
  const size_t per = elementsPerPacket(variant);
  const size_t packets = (count + per - 1) / per;
  const size_t share = (packets + variant.ranks - 1) / variant.ranks;
  return (twoShot ? 2 * share : packets) <= world.slotPackets();
}

struct Case {
  Variant variant;
  Shape shape;
  size_t count = 1;
  size_t shift = 0;  ///< elements by which input and output are off their alignment
  bool inPlace = false;
  size_t at = 0;  ///< bytes into the buffers
  unsigned seed = 1;

  size_t bytes() const { return count * elementSize(variant.element); }
  size_t offset() const { return at + shift * elementSize(variant.element); }
  double factor(int rank) const { return 0.5 + 0.25 * rank; }
  std::vector<Bytes> inputs() const {
    std::vector<Bytes> all;
    for (int r = 0; r < variant.ranks; ++r) all.push_back(inputOf(variant.element, r, count, seed));
    return all;
  }
  Bytes expected() const {
    std::vector<double> factors;
    for (int r = 0; r < variant.ranks; ++r) factors.push_back(factor(r));
    return allReduced(variant.element, variant.op, inputs(), factors);
  }
};

/// Inputs in place, everything around the outputs poisoned. kGuard bytes on both sides are watched.
constexpr size_t kGuard = 64;

void prepare(World& world, const Case& c) {
  const auto inputs = c.inputs();
  for (int r = 0; r < world.size(); ++r) {
    const size_t span = (c.bytes() + 3 * kGuard) / 4 * 4;
    world.fill(world.output(r) + c.at, r, kPoison, span + kGuard);
    check(Driver::get().streamSynchronize(world.streamOf(r)), "sync");
    const DevicePtr to = (c.inPlace ? world.output(r) : world.input(r)) + kGuard + c.offset();
    put(world.gpuOf(r), to, inputs[r].data(), inputs[r].size());
  }
}

Result run(World& world, const Case& c, int rank) {
  const DevicePtr out = world.output(rank) + kGuard + c.offset();
  const DevicePtr in = c.inPlace ? out : world.input(rank) + kGuard + c.offset();
  return world.launch(c.variant, c.shape, rank, in, out, c.count, c.factor(rank));
}

/// Wrong bytes over all ranks: in the result, or written outside of it.
size_t wrongBytes(World& world, const Case& c) {
  const Bytes expected = c.expected();
  size_t wrong = 0;
  for (int r = 0; r < world.size(); ++r) {
    const auto seen = fetch<unsigned char>(world.gpuOf(r), world.output(r) + c.at,
                                           c.bytes() + c.shift * 8 + 2 * kGuard);
    const size_t begin = kGuard + c.offset() - c.at;
    for (size_t i = 0; i < begin + c.bytes() + kGuard / 2; ++i) {
      const bool inside = i >= begin && i < begin + c.bytes();
      const unsigned char poison = static_cast<unsigned char>(kPoison >> 8 * (i % 4));
      wrong += seen[i] != (inside ? expected[i - begin] : poison);
    }
  }
  return wrong;
}

size_t once(World& world, const Case& c) {
  world.load(c.variant);
  prepare(world, c);
  for (int r = 0; r < world.size(); ++r) check(run(world, c, r), "all-reduce");
  world.synchronize();
  return wrongBytes(world, c);
}

struct Tally {
  int cases = 0;
  int bad = 0;
  std::string first;

  void add(const Case& c, size_t wrong) {
    ++cases;
    if (wrong == 0) return;
    if (bad++ == 0) {
      first = c.variant.key() + (c.shape.twoShot ? " two-shot" : " one-shot") + " count " +
              std::to_string(c.count) + " shift " + std::to_string(c.shift) +
              (c.inPlace ? " in place" : "") + " blocks " + std::to_string(c.shape.blocks) + "x" +
              std::to_string(c.shape.threads) + ": " + std::to_string(wrong) + " wrong bytes";
    }
  }

  void emit(const std::string& test) const {
    Row row("all_reduce", test);
    row.add("cases", cases).add("wrong", bad);
    if (bad) row.add("first", first);
    row.emit();
  }
};

void matrix(Gpus& gpus, const Variant& variant) {
  World world(gpus, variant.ranks);
  Tally tally;
  unsigned seed = 1;
  const std::array<Shape, 3> shapes = {Shape{false, 1, 32}, {false, 5, 128}, {false, 64, 256}};
  for (size_t count : {1, 5, 6, 7, 13, 100, 4099, 65539}) {
    for (size_t shift : {0, 1}) {
      for (bool inPlace : {false, true}) {
        for (Shape shape : shapes) {
          for (bool twoShot : {false, true}) {
            if (shape.threads == 32 && count > 5000) continue;
            if (shift + inPlace == 2 && shape.threads != 128) continue;
            shape.twoShot = twoShot;
            const Case c{variant, shape, count, shift, inPlace, 0, ++seed};
            if (fits(world, variant, twoShot, count)) tally.add(c, once(world, c));
          }
        }
      }
    }
  }
  tally.emit("matrix " + variant.key());
}

/// Many operations in flight, of all sizes and shapes, from an epoch just before the wrap.
void mixed(Gpus& gpus, Variant variant, const std::string& name, unsigned firstEpoch, int rounds) {
  World world(gpus, variant.ranks, firstEpoch);
  world.load(variant);
  Tally tally;
  unsigned random = 12345;
  auto next = [&](unsigned below) {
    random = random * 1664525u + 1013904223u;
    return (random >> 8) % below;
  };
  for (int round = 0; round < rounds; ++round) {
    std::vector<Case> cases;
    for (int k = 0; k < 40; ++k) {
      const unsigned threads[] = {32, 64, 128, 256, 512};
      Shape shape{next(2) == 1, 1 + next(k % 4 == 0 ? 64 : 8), threads[next(5)]};
      const size_t count = 1 + next(k % 5 == 0 ? 50000 : 600);
      cases.push_back({variant, shape, count, next(2), next(2) == 1, size_t{120000} * k,
                       static_cast<unsigned>(round * 100 + k)});
    }
    for (const Case& c : cases) prepare(world, c);
    for (int r = 0; r < world.size(); ++r) {
      for (const Case& c : cases) check(run(world, c, r), "all-reduce");
    }
    world.synchronize();
    for (const Case& c : cases) tally.add(c, wrongBytes(world, c));
  }
  tally.emit(name);
}

void lateRank(Gpus& gpus, const Variant& variant) {
  World world(gpus, variant.ranks);
  world.load(variant);
  Tally tally;
  for (bool twoShot : {false, true}) {
    const Case c{variant, {twoShot, 16, 256}, 10000, 0, false, 0, 9};
    prepare(world, c);
    gpus[1 % gpus.count()].use();
    check(world.gpuOf(1).launch("delay", 1, 1, 1 / gpus.count(), uint64_t{30000000}), "delay");
    for (int r = 0; r < world.size(); ++r) check(run(world, c, r), "all-reduce");
    world.synchronize();
    tally.add(c, wrongBytes(world, c));
  }
  tally.emit("one rank 30 ms late");
}

/// One rank never comes; the others are aborted, and say whom they waited for.
void missingRank(Gpus& gpus, const Variant& variant, bool byTimeout) {
  World world(gpus, variant.ranks, 0, byTimeout ? 20000000 : 2000000000);
  world.load(variant);
  const Case c{variant, {false, 16, 256}, 10000, 0, false, 0, 9};
  prepare(world, c);
  const int missing = variant.ranks - 1;
  const double start = secondsNow();
  for (int r = 0; r < missing; ++r) check(run(world, c, r), "all-reduce");
  double aborted = start;
  if (!byTimeout) {
    while (secondsNow() - start < 5e-3) {
    }
    aborted = secondsNow();
    for (int r = 0; r < missing; ++r) std::atomic_ref<uint32_t>(world.control(r).abort).store(1);
  }
  world.synchronize();
  const double ended = secondsNow();
  bool named = true;
  for (int r = 0; r < missing; ++r) {
    const Report& report = world.report(r);
    named = named && report.waitedFor[missing] == 1 && report.epoch == 1;
    for (int other = 0; other < missing; ++other) named = named && report.waitedFor[other] == 0;
  }
  // Later kernels of the broken communicator must return at once.
  const double again = secondsNow();
  for (int r = 0; r < missing; ++r) check(run(world, c, r), "all-reduce");
  world.synchronize();
  Row("all_reduce", byTimeout ? "a rank is missing: timeout of 20 ms" : "a rank is missing: abort")
      .add("ended_after_ms", (ended - aborted) * 1e3)
      .add("missing_rank_named", named ? "yes" : "NO")
      .add("next_kernel_returned_after_ms", (secondsNow() - again) * 1e3)
      .emit();
}

// --- Speed ---------------------------------------------------------------------------------------

/// Microseconds of one operation, replayed from a graph of 100 on every GPU; the slowest rank's.
double replayMicros(World& world, const Case& c) {
  constexpr int kNodes = 100, kReplays = 6;
  const Driver& driver = Driver::get();
  std::vector<double> micros(world.size());
  std::vector<GraphExec> execs(world.size());
  std::vector<std::array<Event, 2>> events(world.size());
  for (int r = 0; r < world.size(); ++r) {
    world.gpuOf(r).use();
    const Stream stream = world.streamOf(r);
    check(driver.streamBeginCapture(stream, CaptureMode::ThreadLocal), "begin");
    for (int k = 0; k < kNodes; ++k) check(run(world, c, r), "all-reduce");
    Graph graph = nullptr;
    check(driver.streamEndCapture(stream, &graph), "end");
    check(driver.graphInstantiate(&execs[r], graph, 0), "instantiate");
    check(driver.graphDestroy(graph), "destroy");
    for (Event& event : events[r]) check(driver.eventCreate(&event, 0), "cuEventCreate");
  }
  std::atomic<int> failed{0};
  std::barrier together(world.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&, r] {
      world.gpuOf(r).use();
      const Stream stream = world.streamOf(r);
      together.arrive_and_wait();
      Result bad = driver.graphLaunch(execs[r], stream);  // brings the ranks into step
      bad |= driver.eventRecord(events[r][0], stream);
      for (int k = 0; k < kReplays; ++k) bad |= driver.graphLaunch(execs[r], stream);
      bad |= driver.eventRecord(events[r][1], stream);
      bad |= driver.streamSynchronize(stream);
      float ms = 0;
      bad |= driver.eventElapsedTime(&ms, events[r][0], events[r][1]);
      if (bad) failed = bad;
      micros[r] = ms * 1e3 / (kNodes * kReplays);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < world.size(); ++r) {
    world.gpuOf(r).use();
    driver.graphExecDestroy(execs[r]);
    for (Event event : events[r]) driver.eventDestroy(event);
    if (world.report(r).state != 0) failed = -1;
  }
  if (failed) return -1;
  return *std::max_element(micros.begin(), micros.end());
}

std::vector<Shape> shapesFor(size_t packets, bool twoShot) {
  std::vector<Shape> shapes;
  for (unsigned threads : {64u, 128u, 256u, 512u}) {
    for (unsigned perThread : {1u, 2u, 4u}) {
      const size_t wanted = (packets + threads * perThread - 1) / (threads * perThread);
      const unsigned blocks = static_cast<unsigned>(std::clamp<size_t>(wanted, 1, 120));
      const bool repeated = perThread > 1 && packets <= threads * (perThread / 2);
      if (!repeated) shapes.push_back({twoShot, blocks, threads});
    }
  }
  auto key = [](const Shape& s) { return std::pair(s.blocks, s.threads); };
  std::sort(shapes.begin(), shapes.end(),
            [&](const Shape& a, const Shape& b) { return key(a) < key(b); });
  shapes.erase(std::unique(shapes.begin(), shapes.end(),
                           [&](const Shape& a, const Shape& b) { return key(a) == key(b); }),
               shapes.end());
  return shapes;
}

void speed(Gpus& gpus, const Variant& variant, const std::vector<size_t>& sizes, bool everyShape) {
  World world(gpus, variant.ranks);
  world.load(variant);
  for (size_t bytes : sizes) {
    for (bool twoShot : {false, true}) {
      const size_t count = bytes / elementSize(variant.element);
      if (!fits(world, variant, twoShot, count)) continue;
      if (!twoShot && bytes > (512 << 10)) continue;
      const size_t per = elementsPerPacket(variant);
      size_t packets = (count + per - 1) / per;
      if (twoShot) packets = (packets + variant.ranks - 1) / variant.ranks;
      double best = 1e9;
      Shape bestShape;
      std::string all;
      size_t wrong = 0;
      for (const Shape& shape : shapesFor(packets, twoShot)) {
        Case c{variant, shape, count, 0, false, 0, 3};
        if (all.empty()) wrong += once(world, c);
        const double micros = replayMicros(world, c);
        if (micros < 0) throw std::runtime_error("a replay failed: " + variant.key());
        all += std::to_string(shape.blocks) + "x" + std::to_string(shape.threads) + ":" +
               std::to_string(micros).substr(0, 5) + " ";
        if (micros < best) {
          best = micros;
          bestShape = shape;
        }
      }
      Case c{variant, bestShape, count, 0, false, 0, 4};
      wrong += once(world, c);
      Row row("all_reduce", "speed");
      row.add("bytes", bytes).add("algorithm", twoShot ? "two-shot" : "one-shot");
      row.add("ranks", variant.ranks).add("payload_words", variant.payloadWords);
      row.add("us", best).add("blocks", bestShape.blocks).add("threads", bestShape.threads);
      row.add("wrong_bytes", wrong);
      if (everyShape) row.add("all_shapes", all);
      row.emit();
    }
  }
}

}  // namespace

void allReduce(const std::string& kernels) {
  Gpus gpus(kernels);
  const int n = std::min(4, std::max(2, gpus.count()));
  // Compiled beforehand, several at a time: the compiler is the slow part.
  std::vector<Variant> matrixVariants = {
      {"BFloat16", "Sum", n}, {"BFloat16", "Avg", n},   {"BFloat16", "PremulSum", n},
      {"BFloat16", "Max", n}, {"Float16", "Sum", n},    {"f32", "Sum", n},
      {"f32", "Min", n},      {"f32", "PremulSum", n},  {"i32", "Sum", n},
      {"u32", "BitXor", n},   {"u8", "Sum", n},         {"f64", "Sum", n},
      {"u64", "Product", n},  {"BFloat16", "Sum", 2},   {"BFloat16", "Sum", 3},
      {"BFloat16", "Sum", 8}, {"BFloat16", "Sum", n, 2}};
  std::vector<std::thread> compilers;
  std::atomic<size_t> taken{0};
  for (int t = 0; t < 8; ++t) {
    compilers.emplace_back([&] {
      for (size_t i; (i = taken++) < matrixVariants.size();) {
        try {
          matrixVariants[i].cubin();
        } catch (const std::exception&) {
          // Thrown again, and reported, where the variant is used.
        }
      }
    });
  }
  for (std::thread& thread : compilers) thread.join();
  const Variant main{"BFloat16", "Sum", n};
  matrix(gpus, main);
  lateRank(gpus, main);
  missingRank(gpus, main, false);
  missingRank(gpus, main, true);
  mixed(gpus, main, "40 operations in flight, across the wrap", 0xffffffe0u, 4);
  mixed(gpus, {"BFloat16", "Sum", n, 3, 8}, "the same, wiping unused slots every 8 operations", 0,
        3);
  for (const Variant& variant : matrixVariants) {
    if (variant.key() != main.key() && variant.ranks <= 2 * gpus.count()) matrix(gpus, variant);
  }
}

void allReduceSpeed(const std::string& kernels) {
  Gpus gpus(kernels);
  const int n = std::min(4, std::max(2, gpus.count()));
  std::vector<size_t> sizes;
  for (size_t bytes = 512; bytes <= (2 << 20); bytes *= 2) sizes.push_back(bytes);
  speed(gpus, {"BFloat16", "Sum", n}, sizes, true);
  speed(gpus, {"BFloat16", "Sum", n, 2}, {8 << 10, 128 << 10, 512 << 10}, false);
  if (n > 2) speed(gpus, {"BFloat16", "Sum", 2}, {512, 8 << 10, 128 << 10, 512 << 10}, false);
}

}  // namespace litmus
