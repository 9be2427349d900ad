// What NCCL tells the profiler plug-in, in each version of it, and what is then read from outside.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "ctran/collective/signature.h"
#include "ctran/os/unique_fd.h"
#include "ctran/trace/reader.h"
#include "tests/unit/nccl_plugin/host.h"

namespace torchcomms::nccl_plugin::testing {
namespace {

using ctran::GroupRecording;
using ctran::RankRecording;

/// As `torchcomms analyze` finds it: by the descriptors of the process.
std::optional<RankRecording> recordingOf(uint64_t comm, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || !name.starts_with("/memfd:ctran-nccl")) continue;
    const ctran::UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    const auto group = ctran::readRecording(fd.get());
    if (!group || group->group != comm) continue;
    for (const RankRecording& one : group->ranks) {
      if (one.rank == rank) return one;
    }
  }
  return std::nullopt;
}

/// Those that a user has called.
std::vector<RankRecording::Operation> operationsOf(uint64_t comm, int rank = 0) {
  std::vector<RankRecording::Operation> calls;
  const auto recording = recordingOf(comm, rank);
  if (!recording) return calls;
  for (const auto& operation : recording->operations) {
    if (operation.isMessage || operation.position > 0) calls.push_back(operation);
  }
  return calls;
}

class EachProfiler : public ::testing::TestWithParam<int> {
 protected:
  int version() const { return GetParam(); }
  bool tellsKernels() const { return GetParam() >= 3; }
};
INSTANTIATE_TEST_SUITE_P(Versions, EachProfiler, ::testing::Range(1, 6),
                         [](const auto& info) { return "V" + std::to_string(info.param); });

TEST_P(EachProfiler, RecordsACollectiveAsNcclDescribesIt) {
  ProfiledComm comm(version(), 2, 4, 0xabc001, "train");
  EXPECT_EQ(comm.result(), 0);
  EXPECT_STREQ(comm.name(), "torchcomms");
  EXPECT_EQ(comm.mask(), tellsKernels() ? 2 + 4 + 64 : 2 + 4);
  Operation reduce;
  reduce.function = "Reduce";
  reduce.functionNumber = 1;
  reduce.type = "ncclBfloat16";
  reduce.typeNumber = 9;
  reduce.count = 777;
  reduce.root = 3;
  reduce.channels = 12;
  void* const handle = comm.collective(reduce);
  ASSERT_NE(handle, nullptr);
  comm.state(handle);
  comm.stop(handle);

  const auto recording = recordingOf(0xabc001, 2);
  ASSERT_TRUE(recording);
  EXPECT_EQ(recording->name, "nccl: train");
  EXPECT_EQ(recording->pid, ::getpid());
  EXPECT_EQ(recording->size, version() >= 4 ? 4 : 3) << "earlier ones do not tell";
  EXPECT_FALSE(recording->hasLeft);
  const auto calls = operationsOf(0xabc001, 2);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].position, 1U) << "people count from 1";
  EXPECT_EQ(ctran::recordedCall(calls[0].what, calls[0].count).text,
            "reduce(bfloat16, 777 elements, root 3)");
  EXPECT_EQ(calls[0].bytes, 1554U);
  EXPECT_EQ(calls[0].algorithm, "nccl/ring");
  EXPECT_EQ(calls[0].why, "simple, 12 channels");
}

TEST_P(EachProfiler, RecordsMessages) {
  ProfiledComm comm(version(), 0, 2, 0xabc002, nullptr);
  Operation send, receive;
  send.function = "Send";
  send.functionNumber = 6;
  send.root = 1;
  send.count = 5;
  receive = send;
  receive.function = "Recv";
  receive.functionNumber = 7;
  comm.stop(comm.message(send));
  comm.stop(comm.message(receive));
  const auto calls = operationsOf(0xabc002);
  ASSERT_EQ(calls.size(), 2U);
  for (const auto& call : calls) {
    EXPECT_TRUE(call.isMessage);
    EXPECT_EQ(call.bytes, 20U);
  }
  EXPECT_EQ(ctran::recordedCall(calls[0].what, 5).text, "send(float32, 5 elements, to rank 1)");
  EXPECT_EQ(ctran::recordedCall(calls[1].what, 5).text, "recv(float32, 5 elements, from rank 1)");
  EXPECT_EQ(recordingOf(0xabc002, 0)->name, "nccl");
}

TEST_P(EachProfiler, AnOperationEndsWithTheLastChannelOfItsKernel) {
  ProfiledComm comm(version(), 0, 2, 0xabc003, "main");
  const auto ended = [&](size_t index) { return operationsOf(0xabc003).at(index).ended != 0; };
  void* const first = comm.collective();
  EXPECT_FALSE(ended(0));
  comm.stop(first);
  EXPECT_TRUE(ended(0)) << "a launch is all that was told until now";
  if (!tellsKernels()) return;
  void* const a = comm.kernel(first, 0);
  EXPECT_FALSE(ended(0));
  void* const b = comm.kernel(first, 1);
  comm.stop(a);
  EXPECT_FALSE(ended(0));
  comm.state(b);
  comm.stop(b);
  EXPECT_TRUE(ended(0));

  void* const second = comm.collective();
  comm.stop(second);
  EXPECT_FALSE(ended(1)) << "it is launched, and has not run";
  const auto launched = operationsOf(0xabc003)[1];
  EXPECT_EQ(launched.called, launched.started);
  void* const c = comm.kernel(second, 0);
  EXPECT_GT(operationsOf(0xabc003)[1].started, launched.started);
  comm.stop(c);
  void* const late = comm.kernel(second, 1);  // a channel that starts when another has ended
  EXPECT_FALSE(ended(1));
  comm.stop(late);
  EXPECT_TRUE(ended(1));
}

TEST_P(EachProfiler, AnOperationWhoseKernelIsNotToldOfEndsWithALaterOne) {
  if (!tellsKernels()) GTEST_SKIP() << "this version tells of none";
  ProfiledComm comm(version(), 0, 2, 0xabc004, "main");
  void* const first = comm.collective();
  comm.stop(first);
  comm.stop(comm.kernel(first, 0));
  comm.stop(comm.collective());
  void* const third = comm.collective();
  comm.stop(third);
  EXPECT_EQ(operationsOf(0xabc004)[1].ended, 0);
  comm.stop(comm.kernel(third, 0));
  EXPECT_NE(operationsOf(0xabc004)[1].ended, 0);
}

TEST_P(EachProfiler, WhatIsNoOperationIsIgnored) {
  ProfiledComm comm(version(), 0, 2, 0xabc005, "main");
  Operation unknown;
  unknown.function = "Frobnicate";
  unknown.functionNumber = 200;
  EXPECT_EQ(comm.collective(unknown), nullptr);
  for (const int type : {1, 8, 16, 32, 128})
    EXPECT_EQ(comm.other(static_cast<uint64_t>(type)), nullptr);
  EXPECT_EQ(comm.kernel(nullptr, 0), nullptr);
  comm.stopWhatever(nullptr);
  comm.state(nullptr);
  void* const call = comm.collective();
  comm.stop(call);
  comm.stop(call);
  for (uintptr_t junk = 1; junk != 0; junk <<= 1) {
    comm.stopWhatever(reinterpret_cast<void*>(junk));
    comm.kernel(reinterpret_cast<void*>(junk), 0);
  }
  EXPECT_EQ(operationsOf(0xabc005).size(), 1U);
}

TEST_P(EachProfiler, WhatComesAfterTheCommunicatorIsIgnored) {
  std::vector<void*> handles;
  {
    ProfiledComm comm(version(), 0, 2, 0xabc006, "main");
    handles.push_back(comm.collective());
    handles.push_back(comm.kernel(handles[0], 0));
    EXPECT_TRUE(recordingOf(0xabc006, 0));
  }
  EXPECT_FALSE(recordingOf(0xabc006, 0));
  ProfiledComm next(version(), 0, 2, 0xabc007, "next");  // takes its place
  void* const call = next.collective();
  for (void* handle : handles) next.stopWhatever(handle);
  EXPECT_EQ(operationsOf(0xabc007).at(0).ended, 0);
  next.stop(call);
}

TEST_P(EachProfiler, OldOperationsMakeRoomForNewOnes) {
  ProfiledComm comm(version(), 0, 2, 0xabc008, "main");
  std::vector<void*> kernels;
  for (int i = 0; i < 3000; ++i) {
    Operation op;
    op.count = static_cast<size_t>(i);
    void* const call = comm.collective(op);
    ASSERT_NE(call, nullptr);
    void* const kernel = tellsKernels() ? comm.kernel(call, 0) : nullptr;
    comm.stop(call);
    // Some that nobody ends until much later.
    if (i % 7 == 0) {
      kernels.push_back(kernel);
    } else {
      comm.stop(kernel);
    }
  }
  for (void* kernel : kernels) comm.stop(kernel);
  const auto calls = operationsOf(0xabc008);
  ASSERT_EQ(calls.size(), 1024U);
  for (const auto& call : calls) {
    EXPECT_EQ(call.count, call.position - 1);
    EXPECT_NE(call.ended, 0) << call.position;
  }
}

TEST_P(EachProfiler, ThreadsMayLaunchAndEndAtTheSameTime) {
  ProfiledComm comm(version(), 0, 2, 0xabc009, "main");
  constexpr int kCalls = 500;
  std::vector<std::atomic<void*>> calls(kCalls);
  std::thread proxy([&] {  // as NCCL's, which sees kernels run
    for (auto& call : calls) {
      void* launched = nullptr;
      while ((launched = call.load()) == nullptr) std::this_thread::yield();
      void* const channels[] = {comm.kernel(launched, 0), comm.kernel(launched, 1)};
      for (void* channel : channels) comm.stop(channel);
    }
  });
  for (auto& call : calls) {
    void* const launched = comm.collective();
    comm.stop(launched);
    call.store(launched);
  }
  proxy.join();
  const auto found = operationsOf(0xabc009);
  ASSERT_EQ(found.size(), size_t{kCalls});
  for (const auto& call : found) EXPECT_NE(call.ended, 0);
}

TEST_P(EachProfiler, SaysNothingWhereRecordingIsOff) {
  ::setenv("CTRAN_TRACE", "0", 1);
  ProfiledComm comm(version(), 0, 2, 0xabc00a, "main");
  comm.stop(comm.collective());
  ::unsetenv("CTRAN_TRACE");
  EXPECT_EQ(comm.result(), 0);
  EXPECT_FALSE(recordingOf(0xabc00a, 0));
}

TEST_P(EachProfiler, ACommunicatorWithoutADescriptorIsNotRecorded) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  ProfiledComm comm(version(), 0, 2, 0xabc00b, "main");
  void* const call = comm.collective();
  comm.stop(call);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(comm.result(), 0);
  EXPECT_EQ(call, nullptr);
  if (version() >= 4) {
    EXPECT_EQ(comm.mask(), 0);
  }
}

}  // namespace
}  // namespace torchcomms::nccl_plugin::testing
