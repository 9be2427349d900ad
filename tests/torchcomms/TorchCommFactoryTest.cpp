// The factory of backends: who is known by which name, and what new_comm makes of a name.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <comms/torchcomms/TorchComm.hpp>

#include "ctran/base/error.h"

namespace torch::comms {
namespace {

const at::Device kCpu(at::kCPU);

std::string messageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

CommOptions alone() {
  CommOptions options;
  options.rank = 0;
  options.size = 1;
  return options;
}

TEST(Factory, KnowsTheBackendsOfThisLibrary) {
  const TorchCommFactory& factory = TorchCommFactory::get();
  EXPECT_TRUE(factory.is_backend_registered("ctran"));
  EXPECT_TRUE(factory.is_backend_registered("fake"));
  EXPECT_FALSE(factory.is_backend_registered("nowhere"));
  const auto names = factory.registered_backends();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::count(names.begin(), names.end(), "ctran"), 1);
}

TEST(Factory, SaysWhatThereIsInsteadOfAnUnknownBackend) {
  const std::string text = messageOf([] { new_comm("nowhere", kCpu, "comm", alone()); });
  EXPECT_NE(text.find("Unknown backend 'nowhere'"), std::string::npos) << text;
  EXPECT_NE(text.find("ctran"), std::string::npos) << text;
  EXPECT_NE(text.find("TORCHCOMMS_BACKEND_LIB_PATH_NOWHERE"), std::string::npos) << text;
}

TEST(Factory, SaysHowABackendIsInstalledThatWasLeftOut) {
  // It is registered by the Python module, which this program has not loaded.
  const std::string text = messageOf([] { new_comm("xccl", kCpu, "comm", alone()); });
  EXPECT_NE(text.find("Unknown backend 'xccl'"), std::string::npos) << text;
  EXPECT_NE(text.find("install torchcomms again with USE_XCCL=1"), std::string::npos) << text;
}

TEST(Factory, MakesWhatWasRegistered) {
  int made = 0;
  TorchCommFactory& factory = TorchCommFactory::get();
  const TorchCommFactory::BackendFactory make = [&] {
    ++made;
    // Any backend will do: an initialised one comes from create_backend, this one is bare.
    return factory.create_backend("fake", kCpu, "inner", alone());
  };
  factory.register_backend("counted", make, {.needsRendezvous = false});
  EXPECT_FALSE(factory.traits("counted").needsRendezvous);
  EXPECT_EQ(made, 0);
  const auto backend = factory.create_backend("counted", kCpu, "comm", alone());
  EXPECT_EQ(made, 1);
  EXPECT_EQ(backend->getCommName(), "comm");
  EXPECT_THROW(factory.register_backend("counted", make), std::invalid_argument);
}

TEST(Factory, RefusesReconfigurationWhereTheBackendHasNone) {
  CommOptions options = alone();
  options.enable_reconfigure = true;
  const std::string text = messageOf([&] { new_comm("fake", kCpu, "comm", options); });
  const bool refused = text.find("enable_reconfigure=true is not supported") != std::string::npos;
  EXPECT_EQ(refused, !TorchCommFactory::get().traits("fake").canReconfigure) << text;
}

TEST(Factory, TakesThePlaceFromTheOptionsElseFromTheEnvironment) {
  setenv("TORCHCOMM_RANK", "2", 1);
  setenv("TORCHCOMM_SIZE", "5", 1);
  const auto fromEnvironment = new_comm("fake", kCpu, "comm", CommOptions());
  EXPECT_EQ(fromEnvironment->getRank(), 2);
  EXPECT_EQ(fromEnvironment->getSize(), 5);
  EXPECT_EQ(new_comm("fake", kCpu, "comm", alone())->getSize(), 1);
  setenv("TORCHCOMM_RANK", "two", 1);
  const std::string text = messageOf([] { new_comm("fake", kCpu, "comm", CommOptions()); });
  EXPECT_NE(text.find("TORCHCOMM_RANK='two' is not an integer of at least -1"), std::string::npos)
      << text;
  unsetenv("TORCHCOMM_RANK");
  unsetenv("TORCHCOMM_SIZE");
}

TEST(Factory, RefusesPlacesThatThereAreNot) {
  for (const auto& [rank, size] : {std::pair{3, 3}, {-1, 3}, {0, 0}}) {
    CommOptions options;
    options.rank = rank;
    options.size = size;
    const std::string text = messageOf([&] { new_comm("fake", kCpu, "comm", options); });
    EXPECT_NE(text.find("rank must be in range"), std::string::npos) << text;
  }
  CommOptions half;
  half.rank = 0;
  const std::string text = messageOf([&] { new_comm("fake", kCpu, "comm", half); });
  EXPECT_NE(text.find("must be given together"), std::string::npos) << text;
}

TEST(Factory, HasAllocatorsOfBackendsThatGiveOne) {
  TorchCommFactory& factory = TorchCommFactory::get();
  EXPECT_THROW(factory.get_allocator("nowhere"), ctran::Error);
  int made = 0;
  factory.register_allocator_factory("giving", [&]() -> std::shared_ptr<c10::Allocator> {
    ++made;
    return {c10::GetAllocator(at::kCPU), [](c10::Allocator*) {}};
  });
  EXPECT_EQ(factory.get_allocator("giving"), factory.get_allocator("giving"));
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace torch::comms
