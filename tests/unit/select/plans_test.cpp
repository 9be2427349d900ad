// The registry of plans and functions.
#include "ctran/select/plans.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace ctran {
namespace {

/// When it goes, another thread has to be able to use the registry, as one that has what this one
/// waits for might.
class Owner {
 public:
  explicit Owner(std::atomic<bool>& wasFree) : wasFree_(wasFree) {}
  ~Owner() {
    auto asks = std::async(std::launch::async, [] { removePlan(0); });
    wasFree_ = asks.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    left_ = std::move(asks);  // it ends when the registry is free
  }

  static void settle() { left_ = {}; }

 private:
  std::atomic<bool>& wasFree_;
  static inline std::future<void> left_;
};

uint64_t registerOwned(std::atomic<bool>& wasFree) {
  UserFunction function;
  function.name = "owned";
  function.owner = std::make_shared<Owner>(wasFree);
  function.run = [](const UserFunction::Call&) {};
  return registerFunction(std::move(function));
}

TEST(Plans, WhatIsRemovedGoesWithoutTheLockOfTheRegistry) {
  std::atomic<bool> wasFree{false};
  EXPECT_TRUE(removePlan(registerOwned(wasFree)));
  Owner::settle();
  EXPECT_TRUE(wasFree);
}

TEST(Plans, WhatAThreadHasSeenLastGoesWithoutTheLockOfTheRegistry) {
  std::atomic<bool> wasFree{false};
  const uint64_t number = registerOwned(wasFree);
  ASSERT_FALSE(registeredPlans().empty());
  EXPECT_TRUE(removePlan(number));
  EXPECT_FALSE(wasFree);  // this thread has it still
  static_cast<void>(registeredPlans());
  Owner::settle();
  EXPECT_TRUE(wasFree);
}

}  // namespace
}  // namespace ctran
