// Memory of a GPU, of the stand-in for its driver: devices reach it through a dma-buf.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ctran/gpu/driver.h"
#include "ctran/rdma/transport.h"
#include "tests/unit/rdma/ends.h"
#include "tests/unit/support/stand_ins.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ctran::testing {
namespace {

constexpr size_t kBytes = 300'000;
constexpr size_t kInPage = 256;  // memory of a GPU need not begin with a page

/// Of the stand-in, which the host can read and write.
class GpuMemory {
 public:
  GpuMemory() {
    standInRuntime();
    const gpu::DeviceGuard guard(0);
    EXPECT_EQ(gpu::Driver::get().memAlloc(&base_, kBytes + kInPage), gpu::kSuccess);
  }
  ~GpuMemory() { gpu::Driver::get().memFree(base_); }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(base_) + kInPage; }

 private:
  gpu::DevicePtr base_ = 0;
};

class RdmaGpuMemory : public ibverbx::VerbsTest {
 protected:
  void TearDown() override {
    ::unsetenv("STAND_IN_DMABUF");
    VerbsTest::TearDown();
  }
};

RdmaRemote remoteOf(const RdmaRegistration& registration) {
  return {reinterpret_cast<uint64_t>(registration.address()), registration.bytes(),
          registration.key().text()};
}

/// How often memory of the stand-in's GPUs is mapped here: its devices map a dma-buf.
int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:stand-in (deleted)") != std::string::npos;
  }
  return count;
}

void expectThatItMoves(const GpuMemory& here, const GpuMemory& there, bool byDmaBuf) {
  const int before = mappings();
  const auto local = RdmaRegistration::of(here.data(), kBytes, 0);
  const auto remote = RdmaRegistration::of(there.data(), kBytes, 0);
  const int devices = static_cast<int>(local->devices().size());
  EXPECT_EQ(mappings() - before, byDmaBuf ? 2 * devices : 0);
  RdmaPair pair;
  for (size_t i = 0; i < kBytes; ++i) here.data()[i] = static_cast<uint8_t>(i * 7);
  std::memset(there.data(), 0xee, kBytes);
  const auto arrives = pair.b.transport->waitForWrite();
  const auto written = pair.a.transport->write(spanOf(local, here.data(), kBytes),
                                               remoteOf(*remote), /*notify=*/true);
  EXPECT_FALSE(outcomeOf(written));
  EXPECT_FALSE(outcomeOf(arrives));
  EXPECT_EQ(std::memcmp(here.data(), there.data(), kBytes), 0);
  std::memset(here.data(), 0xee, kBytes);
  const auto got = pair.a.transport->read(spanOf(local, here.data(), kBytes), remoteOf(*remote));
  EXPECT_FALSE(outcomeOf(got));
  EXPECT_EQ(std::memcmp(here.data(), there.data(), kBytes), 0);
}

TEST_F(RdmaGpuMemory, MovesThroughADmaBuf) {
  const GpuMemory here, there;
  expectThatItMoves(here, there, true);
}

/// The stand-in's devices, as those with the module nvidia_peermem, take any address.
TEST_F(RdmaGpuMemory, MovesThroughThePeerMemoryModuleWithoutADmaBuf) {
  ::setenv("STAND_IN_DMABUF", "0", 1);
  const GpuMemory here, there;
  expectThatItMoves(here, there, false);
}

}  // namespace
}  // namespace ctran::testing
