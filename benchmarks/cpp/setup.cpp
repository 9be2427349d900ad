#include "benchmarks/cpp/setup.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include "benchmarks/cpp/resident.h"
#include "ctran/os/traffic.h"

namespace bench {
namespace {

using ctran::Collective;
using ctran::CollectiveKind;

double reduced(ctran::Communicator& communicator, ctran::ReduceKind kind, double own) {
  Collective collective;
  collective.kind = CollectiveKind::AllReduce;
  collective.type = ctran::DataType::Float64;
  collective.op.kind = kind;
  collective.count = 1;
  collective.input = collective.output = reinterpret_cast<std::byte*>(&own);
  communicator.run(collective);
  return own;
}

/// The largest of all ranks.
double largest(ctran::Communicator& communicator, double own) {
  return reduced(communicator, ctran::ReduceKind::Max, own);
}

/// What this process has written to sockets during each of several calls.
struct Sent {
  std::vector<double> messages, bytes;

  template <class Body>
  auto during(const Body& body) {
    const ctran::Traffic& traffic = ctran::traffic();
    const uint64_t messagesBefore = traffic.messages, bytesBefore = traffic.bytes;
    auto result = body();
    messages.push_back(static_cast<double>(traffic.messages - messagesBefore));
    bytes.push_back(static_cast<double>(traffic.bytes - bytesBefore));
    return result;
  }
};

/// A few small collectives of each kind.
void use(ctran::Communicator& communicator) {
  std::vector<double> data(static_cast<size_t>(communicator.size()));
  for (const CollectiveKind kind :
       {CollectiveKind::AllReduce, CollectiveKind::Broadcast, CollectiveKind::AllGather,
        CollectiveKind::AllToAll, CollectiveKind::Barrier}) {
    Collective collective;
    collective.kind = kind;
    collective.type = ctran::DataType::Float64;
    collective.count = 1;
    std::vector<double> output(data.size());
    collective.input = reinterpret_cast<const std::byte*>(data.data());
    collective.output = reinterpret_cast<std::byte*>(output.data());
    for (int i = 0; i < 4; ++i) communicator.run(collective);
  }
}

/// Seconds of the slowest rank, once all have come.
double timed(ctran::Communicator& base, const std::function<void()>& body) {
  base.run({});
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return largest(base, elapsed.count());
}

void print(const ctran::Communicator& base, const char* what, std::vector<double> values,
           const char* unit) {
  if (base.rank() != 0) return;
  std::sort(values.begin(), values.end());
  std::printf("%-34s %9.2f %9.2f %9.2f  %s\n", what, values[values.size() / 2], values.front(),
              values.back(), unit);
}

}  // namespace

void timeSetup(ctran::Communicator& base, const Create& create, int repeats) {
  std::vector<int> all(static_cast<size_t>(base.size()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<double> creations, splits, memory;
  Sent created, parted;
  use(base);  // the first uses memory of the process's own
  for (int i = 0; i < repeats; ++i) {
    const std::string number = std::to_string(i);
    std::shared_ptr<ctran::Communicator> made, split;
    const double before = residentKilobytes();
    creations.push_back(1e3 * timed(base, [&] {
                          made = created.during([&] { return create("setup-" + number); });
                        }));
    use(*made);
    base.run({});
    memory.push_back(largest(base, residentKilobytes() - before));
    splits.push_back(1e3 * timed(base, [&] {
                       split = parted.during([&] { return base.split(all, "split-" + number); });
                     }));
    split->finalize();
    made->finalize();
  }
  if (base.rank() == 0) {
    std::printf("ctran-bench, %d ranks; median (least, most) of %d repeats, the slowest rank\n\n",
                base.size(), repeats);
  }
  print(base, "create, through the store", creations, "ms");
  print(base, "split, all ranks", splits, "ms");
  const auto printSent = [&base](const std::string& what, const std::vector<double>& own,
                                 const char* unit) {
    std::vector<double> most, mean;
    for (const double value : own) {
      most.push_back(largest(base, value));
      mean.push_back(reduced(base, ctran::ReduceKind::Avg, value));
    }
    print(base, (what + ", sent by rank 0").c_str(), own, unit);
    print(base, (what + ", sent by the busiest rank").c_str(), most, unit);
    print(base, (what + ", sent by a rank, mean").c_str(), mean, unit);
  };
  printSent("create", created.messages, "messages");
  printSent("create", created.bytes, "bytes");
  printSent("split", parted.messages, "messages");
  printSent("split", parted.bytes, "bytes");
  print(base, "memory of a rank, small calls only", memory, "KB");
  std::fflush(stdout);  // the process may end without that
}

}  // namespace bench
