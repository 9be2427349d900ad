#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "ctran/verbs/objects.h"

namespace ibverbx {

/// Fails the test, with the error's text, unless there is a value.
template <typename T>
T must(Expected<T> expected) {
  if (expected.hasError()) {
    ADD_FAILURE() << expected.error().errStr;
    throw std::runtime_error(expected.error().errStr);
  }
  return std::move(expected).value();
}

constexpr unsigned kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// The GID that two ends of port 1 use: the first of RoCE v2 with an IPv4 address, or else the
/// first.
ibv_gid_entry gidOf(const IbvContext& context);

/// A device with what every test needs of it.
struct Side {
  explicit Side(int device = 0, int entries = 4096)
      : context(must(must(IbvDevice::ibvGetDeviceList()).at(device).open())),
        pd(must(context.allocPd())),
        sendCq(must(context.createCq(entries))),
        recvCq(must(context.createCq(entries))),
        gid(gidOf(context)) {}

  IbvQp makeQp(uint32_t sends = 64, uint32_t recvs = 64) const;
  /// From RESET or INIT to RTS, with the other end.
  void connect(IbvQp& qp, uint32_t remoteQpNum, const ibv_gid& remoteGid,
               const IbvRtsOptions& rts = {}) const;
  /// The way to the other end.
  IbvRtrOptions pathTo(const ibv_gid& remoteGid) const;

  IbvContext context;
  IbvPd pd;
  IbvCq sendCq;
  IbvCq recvCq;
  ibv_gid_entry gid;
};

}  // namespace ibverbx
