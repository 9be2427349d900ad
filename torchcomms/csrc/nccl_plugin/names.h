#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "ctran/base/collective_kind.h"
#include "ctran/base/data_type.h"

/// What NCCL calls things, by number and by name.
namespace torchcomms::nccl_plugin {

/// In the order of ncclFunc_t.
inline constexpr std::array<std::string_view, 11> kFunctions{
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
    "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};
inline constexpr std::array<std::string_view, 7> kAlgorithms{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
inline constexpr std::array<std::string_view, 3> kProtocols{"ll", "ll128", "simple"};
/// In the order of ncclDataType_t.
inline constexpr std::array<std::string_view, 12> kTypes{
    "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
    "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
    "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

/// The name of a number; empty if there is none.
template <size_t N>
std::string_view nameAt(const std::array<std::string_view, N>& names, size_t number) {
  return number < N ? names[number] : std::string_view();
}
/// The number of a name, or -1.
template <size_t N>
int numberOf(const std::array<std::string_view, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return -1;
}

/// Of a function by NCCL's name; none of those that are no operation.
std::optional<ctran::CollectiveKind> kindOf(std::string_view function);
/// Of a type by NCCL's name. What it does not name is bytes.
ctran::DataType typeOf(std::string_view name);

}  // namespace torchcomms::nccl_plugin
