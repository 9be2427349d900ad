// Works: what they say while an operation goes on and when it has ended, callbacks, hooks of waits.

#include <gtest/gtest.h>

#include <comms/torchcomms/TorchWork.hpp>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctran/base/error.h"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<TorchWork>;

WorkPtr onThread(std::function<void()> function) {
  return c10::make_intrusive<TorchWorkThread>(std::move(function));
}

std::string messageOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

TEST(Work, OnAThreadEndsWhenItsFunctionReturns) {
  std::promise<void> gate;
  int value = 0;
  const WorkPtr work = onThread([&] {
    gate.get_future().wait();
    value = 7;
  });
  EXPECT_EQ(work->status(), WorkStatus::INPROGRESS);
  EXPECT_FALSE(work->isCompleted());
  EXPECT_FALSE(work->wait(milliseconds(1)));
  gate.set_value();
  work->wait();
  EXPECT_EQ(value, 7);
  EXPECT_EQ(work->status(), WorkStatus::COMPLETED);
  EXPECT_EQ(work->exception(), nullptr);
  EXPECT_TRUE(work->wait(milliseconds(0)));
  work->waitBlocking();
}

TEST(Work, OnAThreadThrowsWhatItsFunctionHasThrown) {
  const WorkPtr work = onThread([] { throw std::runtime_error("it broke"); });
  for (int i = 0; i < 2; ++i) EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_EQ(work->status(), WorkStatus::ERROR);
  EXPECT_EQ(messageOf(work->exception()), "it broke");
  const WorkPtr late =
      onThread([] { throw ctran::Error(ctran::ErrorKind::Timeout, "nobody came"); });
  EXPECT_THROW(late->wait(), ctran::Error);
  EXPECT_EQ(late->status(), WorkStatus::TIMEDOUT);
}

TEST(Work, OnAThreadIsWaitedForByItsLastReference) {
  bool done = false;
  onThread([&] { done = true; }).reset();
  EXPECT_TRUE(done);
}

TEST(Work, OnAThreadLetsGoOfItsFunctionBeforeItEnds) {
  auto held = std::make_shared<int>(1);
  const WorkPtr work = onThread([held] {});
  work->wait();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Work, MayGoOnItsOwnThread) {
  std::promise<void> gate;
  std::promise<void> gone;
  WorkPtr work = onThread([&] { gate.get_future().wait(); });
  work->setCallback([&, own = work] { gone.set_value(); });
  work.reset();  // the callback has the last reference
  gate.set_value();
  gone.get_future().wait();
}

TEST(Work, MayGoWithItsFunction) {
  struct Holder {
    WorkPtr work;
    std::promise<void>& gone;
    ~Holder() {
      work.reset();
      gone.set_value();
    }
  };
  std::promise<void> gate;
  std::promise<void> gone;
  std::shared_ptr<Holder> holder(new Holder{nullptr, gone});
  holder->work = onThread([holder, &gate] { gate.get_future().wait(); });
  holder.reset();  // the function has the last reference, and goes before the work has ended
  gate.set_value();
  gone.get_future().wait();
}

TEST(Work, CallsBackOnceInTheOrderOfRegistration) {
  std::promise<void> gate;
  std::vector<int> called;
  const WorkPtr work = onThread([&] { gate.get_future().wait(); });
  std::promise<void> last;
  work->registerWorkStartHook([&] { called.push_back(0); });  // it has started
  work->setCallback([&] { called.push_back(1); });
  work->registerWorkEndHook([&] {
    called.push_back(2);
    last.set_value();
  });
  EXPECT_EQ(called, std::vector<int>{0});
  gate.set_value();
  last.get_future().wait();
  work->setCallback([&] { called.push_back(3); });  // at once
  EXPECT_EQ(called, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Work, CallsHooksAroundWaits) {
  std::promise<void> gate;
  std::vector<std::string> called;
  const WorkPtr work = onThread([&] { gate.get_future().wait(); });
  work->registerWorkWaitPreHook([&] { called.emplace_back("before"); });
  work->registerWorkWaitPostHook([&] { called.emplace_back("after"); });
  EXPECT_FALSE(work->wait(milliseconds(0)));  // has found nothing
  EXPECT_EQ(called, std::vector<std::string>{"before"});
  gate.set_value();
  work->wait();
  EXPECT_EQ(called, (std::vector<std::string>{"before", "before", "after"}));
}

TEST(Work, ThatHadEndedBeforeTheCallReturned) {
  const WorkPtr work = c10::make_intrusive<TorchWorkCompleted>();
  EXPECT_TRUE(work->isCompleted());
  work->wait();
  int called = 0;
  work->setCallback([&] { ++called; });
  work->registerWorkWaitPreHook([&] { ++called; });
  work->wait();
  EXPECT_EQ(called, 2);
  EXPECT_THROW(TorchWorkCompleted::shared()->registerWorkWaitPreHook([] {}), ctran::Error);
}

}  // namespace
}  // namespace torch::comms
