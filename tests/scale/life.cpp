#include "tests/scale/life.h"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/futex.h"
#include "ctran/os/traffic.h"

namespace ctran::testing {
namespace {

/// A folder, where whoever waits sleeps: thousands that look again and again would take all cores.
class SharedStore final : public Store {
 public:
  SharedStore(const std::string& folder, Stage& stage) : store_(folder), stage_(stage) {}
  void set(const std::string& key, const std::string& value) override {
    ++calls;
    store_.set(key, value);
    std::atomic<uint32_t>& changes = stage_.changesOf(key);
    changes.fetch_add(1);
    futexWake(changes);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    ++calls;
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const std::atomic<uint32_t>& changes = stage_.changesOf(key);
    while (true) {
      const uint32_t seen = changes.load();
      try {
        return store_.get(key, std::chrono::milliseconds(0));
      } catch (const Error& error) {
        const auto left = deadline - std::chrono::steady_clock::now();
        if (error.kind() != ErrorKind::Timeout || left.count() <= 0) throw;
        futexWait(changes, seen, left);
      }
    }
  }
  void remove(const std::string& key) override {
    ++calls;
    store_.remove(key);
  }

  uint64_t calls = 0;

 private:
  DirectoryStore store_;
  Stage& stage_;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Sums of numbers that are different on all ranks.
void requireWorks(Communicator& communicator) {
  const auto size = static_cast<int64_t>(communicator.size());
  int64_t sum[2] = {communicator.rank(), 1};
  Collective collective;
  collective.kind = CollectiveKind::AllReduce;
  collective.type = DataType::Int64;
  collective.count = 2;
  collective.input = collective.output = reinterpret_cast<std::byte*>(sum);
  communicator.run(collective);
  require(sum[0] == size * (size - 1) / 2 && sum[1] == size, "a sum is wrong");
}

}  // namespace

void live(int rank, const Arguments& arguments, Stage& stage, const std::string& folder) {
  const auto store = std::make_shared<SharedStore>(folder, stage);
  const auto measure = [&](Part part, auto body) {
    stage.meet(rank);
    const Traffic& traffic = trafficOfThread();
    Cost& cost = stage.cost(part, rank);
    const uint64_t messages = traffic.messages, bytes = traffic.bytes, calls = store->calls;
    const auto begin = std::chrono::steady_clock::now();
    body();
    cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    cost.messages = traffic.messages - messages;
    cost.bytes = traffic.bytes - bytes;
    cost.storeCalls = store->calls - calls;
    stage.meet(rank);
  };

  CommunicatorOptions options;
  options.rank = rank;
  options.size = arguments.ranks;
  options.store = store;
  options.timeout = std::chrono::seconds(arguments.seconds);
  options.hints["ctran::host"] = "host" + std::to_string(rank / arguments.perHost);
  // The fastest for a few bytes connects each rank to every host, and may.
  options.hints["ctran::algorithm"] = "all_reduce=halving_doubling";
  std::shared_ptr<Communicator> world, group;
  measure(Part::Create, [&] { world = Communicator::create(options); });
  requireWorks(*world);

  std::vector<int> members;
  for (int r = rank % arguments.groups; r < arguments.ranks; r += arguments.groups) {
    members.push_back(r);
  }
  measure(Part::Split, [&] { group = world->split(members, "group"); });
  requireWorks(*group);
  group->finalize();

  const int breaks = arguments.ranks / 2;
  measure(Part::Fail, [&] {
    try {
      if (rank == breaks) return world->abort("on purpose");
      world->run({});  // a barrier
    } catch (const Error& error) {
      require(error.ranks() == std::vector<int>{breaks}, error.what());
      return;
    }
    throw std::runtime_error("a barrier ended without one of its ranks");
  });
}

}  // namespace ctran::testing
