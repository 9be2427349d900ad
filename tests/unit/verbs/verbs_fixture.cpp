#include "tests/unit/verbs/verbs_fixture.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace ibverbx {

const StandInVerbs* StandInVerbs::get() {
#ifdef STAND_IN_VERBS
  static const StandInVerbs controls = [] {
    ::setenv("CTRAN_VERBS_LIBRARY", STAND_IN_VERBS, 1);
    VerbsLibrary::get();
    ::unsetenv("CTRAN_VERBS_LIBRARY");
    void* library = ::dlopen(STAND_IN_VERBS, RTLD_NOW | RTLD_NOLOAD);
    StandInVerbs found;
#define CTRAN_FIND(name, ...) \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(library, #name));
    STAND_IN_VERBS_CONTROLS(CTRAN_FIND)
#undef CTRAN_FIND
    return found;
  }();
  return &controls;
#else
  return nullptr;
#endif
}

IbvQp Side::makeQp(uint32_t sends, uint32_t recvs) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = sendCq.cq();
  attributes.recv_cq = recvCq.cq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {sends, recvs, 2, 2, 64};
  return must(pd.createQp(&attributes));
}

void connect(IbvQp& qp, uint32_t remoteQpNum, const ibv_gid& remoteGid, uint8_t rnrRetry) {
  IbvRtrOptions rtr;
  rtr.remoteQpNum = remoteQpNum;
  rtr.remoteGid = remoteGid;
  IbvRtsOptions rts;
  rts.rnrRetry = rnrRetry;
  if (qp.state() == IBV_QPS_RESET) must(qp.init(1, kAllAccess));
  must(qp.toRtr(rtr));
  must(qp.toRts(rts));
}

void VerbsTest::SetUp() {
  standIn = StandInVerbs::get();
  ASSERT_NE(standIn, nullptr);
  standIn->standInVerbsReset(0);
}

void VerbsTest::TearDown() {
  EXPECT_EQ(standIn->standInVerbsObjects(), 0) << "verbs' objects are left";
}

}  // namespace ibverbx
