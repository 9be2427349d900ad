#include "tests/scale/life.h"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/traffic.h"

namespace ctran::testing {
namespace {

class CountingStore final : public Store {
 public:
  explicit CountingStore(const std::string& folder) : store_(folder) {}
  void set(const std::string& key, const std::string& value) override {
    ++calls;
    store_.set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    ++calls;
    return store_.get(key, timeout);
  }
  void remove(const std::string& key) override {
    ++calls;
    store_.remove(key);
  }

  uint64_t calls = 0;

 private:
  DirectoryStore store_;
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
  const auto store = std::make_shared<CountingStore>(folder);
  const auto measure = [&](Part part, auto body) {
    const Traffic& traffic = trafficOfThread();
    Cost& cost = stage.cost(part, rank);
    const uint64_t messages = traffic.messages, bytes = traffic.bytes, calls = store->calls;
    const auto begin = std::chrono::steady_clock::now();
    body();
    cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    cost.messages = traffic.messages - messages;
    cost.bytes = traffic.bytes - bytes;
    cost.storeCalls = store->calls - calls;
  };

  stage.meet();
  stage.awaitLook(1);
  CommunicatorOptions options;
  options.rank = rank;
  options.size = arguments.ranks;
  options.store = store;
  options.timeout = std::chrono::seconds(arguments.seconds);
  options.hints["ctran::host"] = "host" + std::to_string(rank / arguments.perHost);
  std::shared_ptr<Communicator> world, group;
  measure(Part::Create, [&] { world = Communicator::create(options); });
  stage.meet();
  stage.awaitLook(2);
  requireWorks(*world);

  std::vector<int> members;
  for (int r = rank % arguments.groups; r < arguments.ranks; r += arguments.groups) {
    members.push_back(r);
  }
  stage.meet();
  measure(Part::Split, [&] { group = world->split(members, "group"); });
  requireWorks(*group);
  stage.meet();
  group->finalize();

  const int breaks = arguments.ranks / 2;
  stage.meet();
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
  stage.meet();
}

}  // namespace ctran::testing
