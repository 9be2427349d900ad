#include "torchcomms/csrc/nccl_plugin/names.h"

namespace torchcomms::nccl_plugin {

using ctran::CollectiveKind;
using ctran::DataType;

std::optional<CollectiveKind> kindOf(std::string_view function) {
  static constexpr std::array<std::optional<CollectiveKind>, kFunctions.size()> kKinds{
      CollectiveKind::Broadcast,
      CollectiveKind::Reduce,
      CollectiveKind::AllGather,
      CollectiveKind::ReduceScatter,
      CollectiveKind::AllReduce,
      std::nullopt,  // a group of both
      CollectiveKind::Send,
      CollectiveKind::Recv,
      CollectiveKind::AllToAll,
      CollectiveKind::Scatter,
      CollectiveKind::Gather};
  const int number = numberOf(kFunctions, function);
  return number < 0 ? std::nullopt : kKinds[static_cast<size_t>(number)];
}

DataType typeOf(std::string_view name) {
  static constexpr std::array<DataType, kTypes.size()> kOurs{
      DataType::Int8,    DataType::UInt8,    DataType::Int32,      DataType::UInt32,
      DataType::Int64,   DataType::UInt64,   DataType::Float16,    DataType::Float32,
      DataType::Float64, DataType::BFloat16, DataType::Float8E4M3, DataType::Float8E5M2};
  const int number = numberOf(kTypes, name);
  return number < 0 ? DataType::Opaque1 : kOurs[static_cast<size_t>(number)];
}

}  // namespace torchcomms::nccl_plugin
