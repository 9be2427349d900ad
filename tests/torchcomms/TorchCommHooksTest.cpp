// Hooks: what they are told, when, and how they are taken away.

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <comms/torchcomms/TorchComm.hpp>
#include <stdexcept>

#include "ctran/base/error.h"

namespace torch::comms {
namespace {

std::shared_ptr<TorchComm> makeComm() {
  CommOptions options;
  options.rank = 0;
  options.size = 1;
  return new_comm("ctran", at::Device(at::kCPU), "hooked", options);
}

TEST(Hooks, AreToldOfAnOperationBeforeAndAfterIt) {
  const auto comm = makeComm();
  at::Tensor tensor = at::ones({3});
  std::vector<std::string> told;
  uint64_t before = 0;
  comm->registerPreHook([&](OpName name, uint64_t id, const PreHookArgs& args) {
    const auto& reduction = std::get<AllReducePreHookArgs>(args);
    EXPECT_EQ(name, OpName::all_reduce);
    EXPECT_TRUE(reduction.tensor.is_same(tensor));
    EXPECT_TRUE(reduction.async_op);
    EXPECT_EQ(reduction.timeout, std::chrono::seconds(7));
    before = id;
    told.emplace_back("before");
  });
  comm->registerPostHook([&](uint64_t id, const PostHookArgs& args) {
    EXPECT_EQ(id, before);
    EXPECT_TRUE(std::get<CollectivePostHookArgs>(args).work.lock());
    told.emplace_back("after");
  });
  AllReduceOptions options;
  options.timeout = std::chrono::seconds(7);
  comm->all_reduce(tensor, ReduceOp::SUM, /*async_op=*/true, options)->wait();
  EXPECT_EQ(told, (std::vector<std::string>{"before", "after"}));
}

TEST(Hooks, AreCalledInTheOrderOfRegistrationUntilTheyAreRemoved) {
  const auto comm = makeComm();
  std::string called;
  const auto hook = [&](char letter) {
    return [&called, letter](OpName, uint64_t, const PreHookArgs&) { called += letter; };
  };
  comm->registerPreHook(hook('a'));
  RemovableHandle second = comm->registerPreHook(hook('b'));
  { const RemovableHandle third = comm->registerPreHook(hook('c')); }  // stays
  comm->barrier(false);
  second.remove();
  second.remove();
  comm->barrier(false);
  EXPECT_EQ(called, "abcac");
}

TEST(Hooks, ThatThrowKeepTheOperationFromHappening) {
  const auto comm = makeComm();
  bool after = false;
  comm->registerPreHook(
      [](OpName, uint64_t, const PreHookArgs&) { throw std::runtime_error("not now"); });
  comm->registerPostHook([&](uint64_t, const PostHookArgs&) { after = true; });
  EXPECT_THROW(comm->barrier(false), std::runtime_error);
  EXPECT_FALSE(after);
}

TEST(Hooks, AreNotCalledForArgumentsThatAreWrong) {
  const auto comm = makeComm();
  bool called = false;
  comm->registerPreHook([&](OpName, uint64_t, const PreHookArgs&) { called = true; });
  at::Tensor tensor = at::ones({3});
  EXPECT_THROW(comm->broadcast(tensor, /*root=*/5, false), ctran::Error);
  EXPECT_FALSE(called);
}

TEST(Hooks, AreToldOfAnAbortOnce) {
  const auto comm = makeComm();
  int told = 0;
  comm->registerAbortHook([&] { ++told; });
  comm->abort();
  comm->abort();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(comm->isAborted());
}

TEST(Hooks, OfACommunicatorAreNotThoseOfItsParts) {
  const auto comm = makeComm();
  std::vector<OpName> told;
  comm->registerPreHook([&](OpName name, uint64_t, const PreHookArgs&) { told.push_back(name); });
  const auto part = comm->split({0}, "part");
  part->barrier(false);
  EXPECT_EQ(told, std::vector<OpName>{OpName::split});
}

}  // namespace
}  // namespace torch::comms
