#pragma once

#include <gtest/gtest.h>

#include "ctran/verbs/objects.h"
#include "tests/standins/verbs/control.h"

namespace ibverbx {

/// The stand-in's controls, in the library that this process has loaded as libibverbs.so.1.
struct StandInVerbs {
#define CTRAN_MEMBER(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  STAND_IN_VERBS_CONTROLS(CTRAN_MEMBER)
#undef CTRAN_MEMBER
  /// Null where the tests have been built without it.
  static const StandInVerbs* get();
};

/// Fails the test, with the error's text, unless there is a value.
template <typename T>
T must(Expected<T> expected) {
  if (expected.hasError()) {
    ADD_FAILURE() << expected.error().errStr;
    throw std::runtime_error(expected.error().errStr);
  }
  return std::move(expected).value();
}

/// A device with what every test needs of it.
struct Side {
  explicit Side(int device = 0, int entries = 4096)
      : context(must(must(IbvDevice::ibvGetDeviceList()).at(device).open())),
        pd(must(context.allocPd())),
        sendCq(must(context.createCq(entries))),
        recvCq(must(context.createCq(entries))),
        gid(must(context.queryGid(1, 0)).gid) {}

  IbvQp makeQp(uint32_t sends = 64, uint32_t recvs = 64) const;

  IbvContext context;
  IbvPd pd;
  IbvCq sendCq;
  IbvCq recvCq;
  ibv_gid gid;
};

constexpr unsigned kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// INIT to RTS, with the other end.
void connect(IbvQp& qp, uint32_t remoteQpNum, const ibv_gid& remoteGid, uint8_t rnrRetry = 7);

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  const StandInVerbs* standIn = nullptr;
};

}  // namespace ibverbx
