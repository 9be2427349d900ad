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
  CommOptions members = options;
  if (options.enable_reconfigure) {  // they are not known yet
    members.rank = 0;
    members.size = 1;
  }
  inner().init(at::kCPU, name, members);
  formed_ = !options.enable_reconfigure;
}

bool StagedBackend::direct(OpName op) const {
  if (!formed_) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "Communicator '" + std::string(getCommName()) + "' has no members yet", {},
                       std::string(toString(op)),
                       "made with enable_reconfigure=True, it needs a call of reconfigure() first");
  }
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
  if (direct(OpName::send)) return inner().send(tensor, dst, async_op, options);
  return inner().send(toHost(tensor), dst, async_op, options);
}

TorchCommBackend::WorkPtr StagedBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                              const RecvOptions& options) {
  if (direct(OpName::recv)) return inner().recv(tensor, src, async_op, options);
  return staged({tensor}, false, async_op,
                [&](Tensors& host) { return inner().recv(host[0], src, async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::recvAnySource(at::Tensor& tensor, bool async_op,
                                                       const RecvOptions& options) {
  if (direct(OpName::recv)) return inner().recvAnySource(tensor, async_op, options);
  return staged({tensor}, false, async_op,
                [&](Tensors& host) { return inner().recvAnySource(host[0], async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::batch_op_issue(const std::vector<P2POp>& ops,
                                                        bool async_op,
                                                        const BatchP2POptions& options) {
  if (direct(OpName::batch_op_issue)) return inner().batch_op_issue(ops, async_op, options);
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
    return inner().batch_op_issue(there, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                   const BroadcastOptions& options) {
  if (direct(OpName::broadcast)) return inner().broadcast(tensor, root, async_op, options);
  return staged({tensor}, getRank() == root, async_op,
                [&](Tensors& host) { return inner().broadcast(host[0], root, async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                    bool async_op,
                                                    const AllReduceOptions& options) {
  if (direct(OpName::all_reduce)) return inner().all_reduce(tensor, op, async_op, options);
  return staged({tensor}, true, async_op,
                [&](Tensors& host) { return inner().all_reduce(host[0], op, async_op, options); });
}

TorchCommBackend::WorkPtr StagedBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                                bool async_op, const ReduceOptions& options) {
  if (direct(OpName::reduce)) return inner().reduce(tensor, root, op, async_op, options);
  if (getRank() != root) {
    at::Tensor input = toHost(tensor);
    return inner().reduce(input, root, op, async_op, options);
  }
  return staged({tensor}, true, async_op, [&](Tensors& host) {
    return inner().reduce(host[0], root, op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_gather(const Tensors& tensor_list,
                                                    const at::Tensor& tensor, bool async_op,
                                                    const AllGatherOptions& options) {
  if (direct(OpName::all_gather)) return inner().all_gather(tensor_list, tensor, async_op, options);
  return staged(tensor_list, false, async_op, [&](Tensors& host) {
    return inner().all_gather(host, toHost(tensor), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_gather_v(const Tensors& tensor_list,
                                                      const at::Tensor& tensor, bool async_op,
                                                      const AllGatherOptions& options) {
  if (direct(OpName::all_gather_v))
    return inner().all_gather_v(tensor_list, tensor, async_op, options);
  return staged(tensor_list, false, async_op, [&](Tensors& host) {
    return inner().all_gather_v(host, toHost(tensor), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_gather_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllGatherSingleOptions& options) {
  if (direct(OpName::all_gather_single))
    return inner().all_gather_single(output, input, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner().all_gather_single(host[0], toHost(input), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::reduce_scatter(at::Tensor& output,
                                                        const Tensors& input_list,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterOptions& options) {
  if (direct(OpName::reduce_scatter))
    return inner().reduce_scatter(output, input_list, op, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner().reduce_scatter(host[0], toHost(input_list), op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::reduce_scatter_v(at::Tensor& output,
                                                          const Tensors& input_list,
                                                          const ReduceOp& op, bool async_op,
                                                          const ReduceScatterOptions& options) {
  if (direct(OpName::reduce_scatter_v))
    return inner().reduce_scatter_v(output, input_list, op, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner().reduce_scatter_v(host[0], toHost(input_list), op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  if (direct(OpName::reduce_scatter_single))
    return inner().reduce_scatter_single(output, input, op, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner().reduce_scatter_single(host[0], toHost(input), op, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_to_all_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllToAllSingleOptions& options) {
  if (direct(OpName::all_to_all_single))
    return inner().all_to_all_single(output, input, async_op, options);
  return staged({output}, false, async_op, [&](Tensors& host) {
    return inner().all_to_all_single(host[0], toHost(input), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  if (direct(OpName::all_to_all_v_single)) {
    return inner().all_to_all_v_single(output, input, output_split_sizes, input_split_sizes,
                                       async_op, options);
  }
  // What no rank writes stays as it was.
  return staged({output}, true, async_op, [&](Tensors& host) {
    return inner().all_to_all_v_single(host[0], toHost(input), output_split_sizes,
                                       input_split_sizes, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::all_to_all(const Tensors& output_tensor_list,
                                                    const Tensors& input_tensor_list, bool async_op,
                                                    const AllToAllOptions& options) {
  if (direct(OpName::all_to_all))
    return inner().all_to_all(output_tensor_list, input_tensor_list, async_op, options);
  return staged(output_tensor_list, false, async_op, [&](Tensors& host) {
    return inner().all_to_all(host, toHost(input_tensor_list), async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::barrier(bool async_op, const BarrierOptions& options) {
  static_cast<void>(direct(OpName::barrier));  // throws in a capture
  return inner().barrier(async_op, options);
}

TorchCommBackend::WorkPtr StagedBackend::scatter(at::Tensor& output_tensor,
                                                 const Tensors& input_tensor_list, int root,
                                                 bool async_op, const ScatterOptions& options) {
  if (direct(OpName::scatter))
    return inner().scatter(output_tensor, input_tensor_list, root, async_op, options);
  return staged({output_tensor}, false, async_op, [&](Tensors& host) {
    const Tensors inputs = getRank() == root ? toHost(input_tensor_list) : Tensors();
    return inner().scatter(host[0], inputs, root, async_op, options);
  });
}

TorchCommBackend::WorkPtr StagedBackend::gather(const Tensors& output_tensor_list,
                                                const at::Tensor& input_tensor, int root,
                                                bool async_op, const GatherOptions& options) {
  if (direct(OpName::gather))
    return inner().gather(output_tensor_list, input_tensor, root, async_op, options);
  const Tensors outputs = getRank() == root ? output_tensor_list : Tensors();
  return staged(outputs, false, async_op, [&](Tensors& host) {
    return inner().gather(host, toHost(input_tensor), root, async_op, options);
  });
}

std::shared_ptr<TorchCommBackend> StagedBackend::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  static_cast<void>(direct(OpName::split));
  std::shared_ptr<TorchCommBackend> part = inner().split(ranks, name, options);
  if (!part) return nullptr;
  auto child = std::make_shared<StagedBackend>(make_, std::move(part));
  child->device_ = device_;
  child->formed_ = true;
  return child;
}

}  // namespace torch::comms
