#include "ctran/collective/alone.h"

#include "ctran/base/error.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

Task copyAlone(ShmContext&, const Collective& c) {
  const Block input = c.inputBlock(0);
  switch (c.kind) {
    case CollectiveKind::Barrier:
    case CollectiveKind::Broadcast:
      break;
    case CollectiveKind::AllReduce:
    case CollectiveKind::Reduce:
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::ReduceScatterV: {
      // Reduces one contribution; that changes bools that are neither 0 nor 1.
      const std::byte* source = input.data;
      if (input.count > 0) reduceFn(c.op.kind, c.type)(c.output, &source, 1, input.count, 1);
      break;
    }
    case CollectiveKind::AllToAllV:
      if (c.inputs[0].count != c.outputs[0].count) {
        throw Error(ErrorKind::Mismatch,
                    "all_to_all_v: rank 0 sends itself another count than it "
                    "expects",
                    {0}, c.describe());
      }
      [[fallthrough]];
    default:
      copyBlock(c.outputBlock(0).data, input.data, input.count * sizeOf(c.type));
  }
  co_return;
}

}  // namespace

const Algorithm& aloneAlgorithm() {
  static constexpr Algorithm copy{
      .name = "copy", .kinds = {}, .run = copyAlone, .micros = [](const AlgorithmQuery&) {
        return 0.0;
      }};
  return copy;
}

}  // namespace ctran
