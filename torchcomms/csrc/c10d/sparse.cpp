#include "torchcomms/csrc/c10d/sparse.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <vector>

#include "ctran/base/error.h"

namespace torch::comms {

namespace {

/// All ranks' `part`, which has `lengths[r]` entries in dimension `dim`, one after another.
at::Tensor gathered(TorchComm& comm, const at::Tensor& part, const std::vector<int64_t>& lengths,
                    int64_t dim, const AllGatherOptions& options) {
  std::vector<at::Tensor> parts;
  for (const int64_t length : lengths) {
    std::vector<int64_t> shape = part.sizes().vec();
    shape[dim] = length;
    parts.push_back(at::empty(shape, part.options()));
  }
  comm.all_gather_v(parts, part.contiguous(), /*async_op=*/false, options);
  return at::cat(parts, dim);
}

}  // namespace

void allReduceSparse(TorchComm& comm, at::Tensor& tensor, const ReduceOp& op,
                     const AllGatherOptions& options) {
  const bool average = op.type() == RedOpType::AVG;
  if (!tensor.is_sparse() || (op.type() != RedOpType::SUM && !average)) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "all_reduce of a sparse tensor: COO tensors can be summed (or averaged), "
                       "got layout " +
                           c10::str(tensor.layout()) + " and " + std::string(toString(op.type())),
                       {}, "all_reduce", "make it dense first: tensor.to_dense()");
  }
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  const at::Tensor own = tensor.coalesce();
  const at::Tensor entries =
      at::full({1}, own._nnz(), at::dtype(at::kLong).device(tensor.device()));
  at::Tensor all = at::empty({comm.getSize()}, entries.options());
  AllGatherSingleOptions single;
  single.timeout = options.timeout;
  comm.all_gather_single(all, entries, /*async_op=*/false, single);
  const at::Tensor onHost = all.cpu();
  const int64_t* counts = onHost.const_data_ptr<int64_t>();
  const std::vector<int64_t> lengths(counts, counts + comm.getSize());

  const at::Tensor indices = gathered(comm, own._indices(), lengths, 1, options);
  at::Tensor values = gathered(comm, own._values(), lengths, 0, options);
  if (average) values.div_(comm.getSize());
  tensor.copy_(
      at::sparse_coo_tensor(indices, values, tensor.sizes(), values.options().layout(at::kSparse))
          .coalesce());
}

}  // namespace torch::comms
