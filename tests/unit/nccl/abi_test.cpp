// Compares our declarations of NCCL's types with nccl.h, on machines that have one.

#include <gtest/gtest.h>

#include "torchcomms/csrc/backends/nccl/library.hpp"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)  // which nccl.h includes
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace torch::comms::nccl {

#define SAME_NUMBER(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

SAME_NUMBER(Result::Success, ncclSuccess);
SAME_NUMBER(Result::InvalidUsage, ncclInvalidUsage);
SAME_NUMBER(Result::RemoteError, ncclRemoteError);
SAME_NUMBER(Result::InProgress, ncclInProgress);
SAME_NUMBER(DataType::Uint8, ncclUint8);
SAME_NUMBER(DataType::Float16, ncclFloat16);
SAME_NUMBER(DataType::Float64, ncclFloat64);
SAME_NUMBER(DataType::Bfloat16, ncclBfloat16);
SAME_NUMBER(kSum, ncclSum);
SAME_NUMBER(kProd, ncclProd);
SAME_NUMBER(kMax, ncclMax);
SAME_NUMBER(kMin, ncclMin);
SAME_NUMBER(kAvg, ncclAvg);
SAME_NUMBER(ScalarResidence::Device, ncclScalarDevice);
SAME_NUMBER(ScalarResidence::HostImmediate, ncclScalarHostImmediate);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(kSplitNoColor == NCCL_SPLIT_NOCOLOR);
#ifdef NCCL_API_MAGIC
static_assert(Config{}.magic == NCCL_API_MAGIC);
#endif

#define SAME_PLACE(member) static_assert(offsetof(Config, member) == offsetof(ncclConfig_t, member))

SAME_PLACE(size);
SAME_PLACE(version);
SAME_PLACE(blocking);
SAME_PLACE(maxCTAs);
SAME_PLACE(netName);
SAME_PLACE(splitShare);
#if NCCL_VERSION_CODE >= 22700
SAME_NUMBER(DataType::Float8e4m3, ncclFloat8e4m3);
SAME_NUMBER(DataType::Float8e5m2, ncclFloat8e5m2);
SAME_PLACE(trafficClass);
SAME_PLACE(commName);
SAME_PLACE(CTAPolicy);
SAME_PLACE(nvlsCTAs);
#endif

// A function of theirs fits a member of ours: as many parameters, each of the same size.
template <typename... Ours, typename... Theirs>
constexpr bool fits(Result (*)(Ours...), ncclResult_t (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs))
    return ((sizeof(Ours) == sizeof(Theirs)) && ...);
  return false;
}

#define FITS(member, symbol) static_assert(fits(decltype(Library::member){}, decltype(&symbol){}))

FITS(commInitRankConfig, ncclCommInitRankConfig);
FITS(commSplit, ncclCommSplit);
FITS(redOpCreatePreMulSum, ncclRedOpCreatePreMulSum);
FITS(reduce, ncclReduce);
FITS(broadcast, ncclBroadcast);
FITS(allReduce, ncclAllReduce);
FITS(reduceScatter, ncclReduceScatter);
FITS(allGather, ncclAllGather);
FITS(send, ncclSend);
FITS(recv, ncclRecv);
FITS(memAlloc, ncclMemAlloc);
FITS(commRegister, ncclCommRegister);
#if NCCL_VERSION_CODE >= 22800
FITS(alltoAll, ncclAlltoAll);
FITS(gather, ncclGather);
FITS(scatter, ncclScatter);
#endif
#if NCCL_VERSION_CODE >= 22900
FITS(putSignal, ncclPutSignal);
FITS(signal, ncclSignal);
#endif

}  // namespace torch::comms::nccl
#endif

namespace torch::comms::nccl {
namespace {

TEST(NcclConfigTest, LeavesOutWhatEarlierVersionsDoNotHave) {
  EXPECT_EQ(offsetof(Config, trafficClass) + sizeof(int), 48U);
  EXPECT_EQ(sizeof(Config), 72U);
}

}  // namespace
}  // namespace torch::comms::nccl
