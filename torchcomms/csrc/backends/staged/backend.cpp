#include "torchcomms/csrc/backends/staged/backend.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/staged/work.hpp"
#include "torchcomms/csrc/backends/stream/current_stream.hpp"

namespace torch::comms {

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor toHost(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  return tensor.to(at::kCPU);
}

Tensors toHost(const Tensors& tensors) {
  Tensors host;
  host.reserve(tensors.size());
  for (const at::Tensor& t : tensors) host.push_back(toHost(t));
  return host;
}

bool exists(c10::DeviceType type) {
  return type != c10::DeviceType::Meta && c10::impl::hasDeviceGuardImpl(type) &&
         c10::impl::getDeviceGuardImpl(type)->deviceCount() > 0;
}

}  // namespace

void StagedBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  if (!device.is_cpu() && !exists(device.type())) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend " + std::string(getBackendName()) + " has no support for device '" +
                           device.str() +
                           "'; it works on tensors of the CPU, and through host memory on those of "
                           "devices that this torch has",
                       {}, {}, "pass torch.device(\"cpu\")");
  }
  device_ = stream::chooseDevice(device, options.rank.value());
  inner_->init(device.is_cpu() ? device : at::Device(at::kCPU), name, options);
}

bool StagedBackend::direct(OpName op) const {
  if (device_.is_cpu()) return true;
  if (staged::isCapturing(device_)) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       std::string(toString(op)) + " of backend " + std::string(getBackendName()) +
                           " goes through host memory, of which a graph's replays know nothing",
                       {}, std::string(toString(op)),
                       "leave it out of the capture, or use backend ctran or nccl");
  }
  return false;
}

template <typename Call>
TorchCommBackend::WorkPtr StagedBackend::staged(const Tensors& outputs, bool read, bool async_op,
                                                const Call& call) {
  const c10::DeviceGuard guard(device_);
  auto results = std::make_shared<staged::Results>(device_, outputs, read);
  WorkPtr work = call(results->host());
  if (async_op) return c10::make_intrusive<staged::StagedWork>(std::move(work), std::move(results));
  const HostWait wait;
  results->copyNow();
  return work;
}

TorchCommBackend::WorkPtr StagedBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                              const SendOptions& options) {
  if (direct(OpName::send)) return inner_->send(tensor, dst, async_op, options);
  return inner_->send(toHost(tensor), dst, async_op, options);
}

TorchCommBackend::WorkPtr StagedBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                              const RecvOptions& options) {
  if (direct(OpName::recv)) return inner_->recv(tensor, src, async_op, options);
  return staged({tensor}, false, async_op,
                [&](Tensors& host) { return inner_->recv(host[0], src, async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::recvAnySource(at::Tensor& tensor, bool async_op,
                                                       const RecvOptions& options) {
  if (direct(OpName::recv)) return inner_->recvAnySource(tensor, async_op, options);
  return staged({tensor}, false, async_op,
                [&](Tensors& host) { return inner_->recvAnySource(host[0], async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::batch_op_issue(const std::vector<P2POp>& ops,
                                                        bool async_op,
                                                        const BatchP2POptions& options) {
  if (direct(OpName::batch_op_issue)) return inner_->batch_op_issue(ops, async_op, options);
  Tensors received;
  for (const P2POp& one : ops) {
    if (one.type == P2POp::Type::RECV) received.push_back(one.tensor);
  }
  return staged(received, false, async_op, [&](Tensors& host) {
    std::vector<P2POp> there = ops;
    auto next = host.begin();
    for (P2POp& one : there) {
      one.tensor = one.type == P2POp::Type::RECV ? *next++ : toHost(one.tensor);
    }
    return inner_->batch_op_issue(there, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                   const BroadcastOptions& options) {
  if (direct(OpName::broadcast)) return inner_->broadcast(tensor, root, async_op, options);
  return staged({tensor}, getRank() == root, async_op,
                [&](Tensors& host) { return inner_->broadcast(host[0], root, async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                    bool async_op,
                                                    const AllReduceOptions& options) {
  if (direct(OpName::all_reduce)) return inner_->all_reduce(tensor, op, async_op, options);
  return staged({tensor}, true, async_op,
                [&](Tensors& host) { return inner_->all_reduce(host[0], op, async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                                bool async_op, const ReduceOptions& options) {
  if (direct(OpName::reduce)) return inner_->reduce(tensor, root, op, async_op, options);
  if (getRank() != root) {
    at::Tensor input = toHost(tensor);
    return inner_->reduce(input, root, op, async_op, options);
  }
  return staged({tensor}, true, async_op, [&](Tensors& host) {
    return inner_->reduce(host[0], root, op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_gather(const Tensors& tensor_list,
                                                    const at::Tensor& tensor, bool async_op,
                                                    const AllGatherOptions& options) {
  if (direct(OpName::all_gather)) return inner_->all_gather(tensor_list, tensor, async_op, options);
  return staged(tensor_list, false, async_op, [&](Tensors& host) {
    return inner_->all_gather(host, toHost(tensor), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_gather_v(const Tensors& tensor_list,
                                                      const at::Tensor& tensor, bool async_op,
                                                      const AllGatherOptions& options) {
  if (direct(OpName::all_gather_v))
    return inner_->all_gather_v(tensor_list, tensor, async_op, options);
  return staged(tensor_list, false, async_op, [&](Tensors& host) {
    return inner_->all_gather_v(host, toHost(tensor), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_gather_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllGatherSingleOptions& options) {
  if (direct(OpName::all_gather_single))
    return inner_->all_gather_single(output, input, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner_->all_gather_single(host[0], toHost(input), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::reduce_scatter(at::Tensor& output,
                                                        const Tensors& input_list,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterOptions& options) {
  if (direct(OpName::reduce_scatter))
    return inner_->reduce_scatter(output, input_list, op, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner_->reduce_scatter(host[0], toHost(input_list), op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::reduce_scatter_v(at::Tensor& output,
                                                          const Tensors& input_list,
                                                          const ReduceOp& op, bool async_op,
                                                          const ReduceScatterOptions& options) {
  if (direct(OpName::reduce_scatter_v))
    return inner_->reduce_scatter_v(output, input_list, op, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner_->reduce_scatter_v(host[0], toHost(input_list), op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  if (direct(OpName::reduce_scatter_single))
    return inner_->reduce_scatter_single(output, input, op, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner_->reduce_scatter_single(host[0], toHost(input), op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_to_all_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllToAllSingleOptions& options) {
  if (direct(OpName::all_to_all_single))
    return inner_->all_to_all_single(output, input, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner_->all_to_all_single(host[0], toHost(input), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  if (direct(OpName::all_to_all_v_single)) {
    return inner_->all_to_all_v_single(output, input, output_split_sizes, input_split_sizes,
                                       async_op, options);
  }
  // What no rank writes stays as it was.
  return staged({output}, true, async_op, [&](Tensors& host) {
    return inner_->all_to_all_v_single(host[0], toHost(input), output_split_sizes,
                                       input_split_sizes, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_to_all(const Tensors& output_tensor_list,
                                                    const Tensors& input_tensor_list, bool async_op,
                                                    const AllToAllOptions& options) {
  if (direct(OpName::all_to_all))
    return inner_->all_to_all(output_tensor_list, input_tensor_list, async_op, options);
  return staged(output_tensor_list, false, async_op, [&](Tensors& host) {
    return inner_->all_to_all(host, toHost(input_tensor_list), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::barrier(bool async_op, const BarrierOptions& options) {
  static_cast<void>(direct(OpName::barrier));  // throws in a capture
  return inner_->barrier(async_op, options);
}

TorchCommBackend::WorkPtr StagedBackend::scatter(at::Tensor& output_tensor,
                                                 const Tensors& input_tensor_list, int root,
                                                 bool async_op, const ScatterOptions& options) {
  if (direct(OpName::scatter))
    return inner_->scatter(output_tensor, input_tensor_list, root, async_op, options);
  return staged({output_tensor}, false, async_op, [&](Tensors& host) {
    const Tensors inputs = getRank() == root ? toHost(input_tensor_list) : Tensors();
    return inner_->scatter(host[0], inputs, root, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::gather(const Tensors& output_tensor_list,
                                                const at::Tensor& input_tensor, int root,
                                                bool async_op, const GatherOptions& options) {
  if (direct(OpName::gather))
    return inner_->gather(output_tensor_list, input_tensor, root, async_op, options);
  const Tensors outputs = getRank() == root ? output_tensor_list : Tensors();
  return staged(outputs, false, async_op, [&](Tensors& host) {
    return inner_->gather(host, toHost(input_tensor), root, async_op, options);
  });
}

std::shared_ptr<TorchCommBackend> StagedBackend::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  std::shared_ptr<TorchCommBackend> part = inner_->split(ranks, name, options);
  if (!part) return nullptr;
  auto child = std::make_shared<StagedBackend>(std::move(part));
  child->device_ = device_;
  return child;
}

}  // namespace torch::comms
