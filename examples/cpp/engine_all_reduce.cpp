// The engine from C++, without torch. One process per rank, all with the same store:
//
//     ./engine_all_reduce 0 2 file:///tmp/ranks & ./engine_all_reduce 1 2 file:///tmp/ranks
//
// CMakeLists.txt finds the package `ctran`: its headers and its library.

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "ctran/communicator.h"
#include "ctran/function.h"
#include "ctran/plan.h"
#include "ctran/window.h"

namespace {

using namespace ctran::api;
using ctran::CollectiveKind;

void say(int rank, const std::string& text) {
  std::cout << "[rank " + std::to_string(rank) + "] " + text + "\n";
}

Call sumOf(std::vector<float>& values) {
  Call call;
  call.kind = CollectiveKind::AllReduce;
  call.type = ctran::DataType::Float32;
  call.op.kind = ctran::ReduceKind::Sum;
  call.count = values.size();
  call.input = call.output = values.data();  // in place
  return call;
}

/// An all_reduce of our own, made of other calls.
void toRank0AndBack(const FunctionCall& asked) {
  Communicator group(asked.group);
  Call call;
  call.kind = CollectiveKind::Reduce;
  call.type = asked.type;
  call.op.kind = asked.op;
  call.count = asked.inputBytes / sizeof(float);
  call.input = asked.input;
  call.output = asked.output;
  group.run(call);
  call.kind = CollectiveKind::Broadcast;
  group.run(call);
}

void run(int rank, int size, const std::string& url) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.name = "example";
  options.store = openStore(url);
  const auto comm = Communicator::create(options);

  std::vector<float> values(1000, static_cast<float>(rank + 1));
  comm->run(sumOf(values));
  say(rank, "sum " + std::to_string(values[0]));

  // Posted, on a part of the ranks.
  const std::vector<int> even{0}, odd{1};
  const auto part = comm->split(rank % 2 == 0 ? even : odd, "part");
  std::vector<float> own(8, 5);
  Call call = sumOf(own);
  const auto work = part->post(call);
  work->wait();
  say(rank, "sum of a part " + std::to_string(own[0]));

  const Explanation explanation = comm->explain(CollectiveKind::AllReduce, 1 << 20, call.type,
                                                {{"ctran::algorithm", "all_reduce=two_phase"}});
  say(rank, explanation.algorithm + ": " + explanation.why);

  // All ranks register the same, before the same call.
  Function function;
  function.name = "to_rank_0_and_back";
  function.whyNot = [](const FunctionQuery& query) {
    return query.type == ctran::DataType::Float32 ? std::string() : "it sums float32 alone";
  };
  function.run = toRank0AndBack;
  const uint64_t number = registerFunction(function, {.communicator = "example"});
  const Hints byIt{{"ctran::algorithm", "plan:to_rank_0_and_back"}};
  const Explanation served = comm->explain(CollectiveKind::AllReduce, 4000, call.type, byIt);
  say(rank, served.algorithm + ": " + served.why);
  values.assign(1000, static_cast<float>(rank + 1));
  call = sumOf(values);
  call.hints = byIt;
  comm->run(call);
  say(rank, "sum by a function " + std::to_string(values[999]));
  removePlan(number);

  // Memory that the others write to.
  const auto memory = allocateShared(sizeof(int));
  const auto window = Window::create(*comm, {memory.get(), sizeof(int)});
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  Window::finish(window->put(next, 0, std::as_bytes(std::span(&rank, 1))));
  Window::finish(window->signal(next));
  Window::finish(window->waitSignal(previous));
  say(rank, "was written to by " + std::to_string(*reinterpret_cast<int*>(memory.get())));
  window->close();

  call.count = 0;
  call.hints = {{"ctran::algorithm", "no_such_algorithm"}};
  try {
    comm->run(call);
  } catch (const ctran::Error& error) {
    say(rank, error.kind() == ctran::ErrorKind::InvalidArgument ? "refused" : error.what());
  }
  try {
    registerPlan("{}");
  } catch (const ctran::Error& error) {
    say(rank, error.kind() == ctran::ErrorKind::InvalidArgument ? "no plan" : error.what());
  }
  part->finalize();
  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " RANK SIZE URL\n";
    return 2;
  }
  try {
    run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
