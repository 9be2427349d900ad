#pragma once

#include <comms/torchcomms/TorchComm.hpp>

namespace torch::comms {

/// The sum (or average) of all ranks' sparse COO tensors of one shape, coalesced, replaces
/// `tensor`. Every rank gets every rank's indices and values: n - 1 times its own size on the
/// average. Waits for the end.
void allReduceSparse(TorchComm& comm, at::Tensor& tensor, const ReduceOp& op,
                     const AllGatherOptions& options);

}  // namespace torch::comms
