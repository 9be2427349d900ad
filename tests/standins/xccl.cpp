// A stand-in for PyTorch's ProcessGroupXCCL: work on a stream of the device of device.cpp, carried
// out by PyTorch's Gloo on the same memory. It refuses what oneCCL does not have.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>

extern "C" void standInDevicePush(c10::StreamId stream, const std::function<void()>* task);

namespace {

using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<Work>;

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

const c10::impl::DeviceGuardImplInterface& guard() { return *c10::impl::getDeviceGuardImpl(kType); }

at::Tensor inHost(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_cpu(), "Tensors must be XPU and dense");
  switch (tensor.scalar_type()) {
    case at::kByte:
    case at::kChar:
    case at::kBool:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      break;
    default:
      TORCH_CHECK(false, "Unconvertible XCCL type ", tensor.scalar_type());
  }
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
      tensor.options().device(at::kCPU));
}

Tensors inHost(const Tensors& tensors) {
  Tensors host;
  for (const at::Tensor& tensor : tensors) host.push_back(inHost(tensor));
  return host;
}

std::vector<Tensors> inHost(const std::vector<Tensors>& lists) {
  std::vector<Tensors> host;
  for (const Tensors& list : lists) host.push_back(inHost(list));
  return host;
}

void check(const c10d::ReduceOp& op) {
  using Op = c10d::ReduceOp::RedOpType;
  const bool isThere = op == Op::SUM || op == Op::PRODUCT || op == Op::MIN || op == Op::MAX;
  TORCH_CHECK(isThere, "Cannot use ReduceOp of bits with XCCL");
}

class StreamWork final : public Work {
 public:
  explicit StreamWork(const c10::Stream& stream) : end_(kType) { end_.record(stream); }
  bool isCompleted() override { return end_.query(); }
  bool wait(std::chrono::milliseconds) override {
    end_.block(guard().getStream(kDevice));
    return true;
  }

 private:
  c10::Event end_;
};

class ProcessGroupXCCL final : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    Options() : c10d::Backend::Options("xccl") {}
  };

  ProcessGroupXCCL(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                   const c10::intrusive_ptr<Options>& options)
      : Backend(rank, size), stream_(guard().getStreamFromGlobalPool(kDevice)) {
    const py::object gloo =
        py::module_::import("torch._C._distributed_c10d").attr("ProcessGroupGloo");
    gloo_ = gloo(store, rank, size, options->timeout).cast<c10::intrusive_ptr<Backend>>();
    const py::gil_scoped_release free;
    if (size > 1) gloo_->barrier()->wait();
  }

  const std::string getBackendName() const override { return "xccl"; }
  bool supportsCoalescing() const override { return true; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return put([=, host = inHost(tensors)](Backend& b) mutable { return b.broadcast(host, opts); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    check(opts.reduceOp);
    return put([=, host = inHost(tensors)](Backend& b) mutable { return b.allreduce(host, opts); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    check(opts.reduceOp);
    return put([=, host = inHost(tensors)](Backend& b) mutable { return b.reduce(host, opts); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    return put([=, to = inHost(outputs), from = inHost(inputs)](Backend& b) mutable {
      return b.allgather(to, from, opts);
    });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return put([=, to = inHost(output), from = inHost(input)](Backend& b) mutable {
      return b._allgather_base(to, from, opts);
    });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    return put([=, to = inHost(outputs), from = inHost(inputs)](Backend& b) mutable {
      return b.gather(to, from, opts);
    });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override {
    return put([=, to = inHost(outputs), from = inHost(inputs)](Backend& b) mutable {
      return b.scatter(to, from, opts);
    });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSizes,
                        std::vector<int64_t>& inputSizes,
                        const c10d::AllToAllOptions& opts) override {
    return put([=, to = inHost(output), from = inHost(input)](Backend& b) mutable {
      return b.alltoall_base(to, from, outputSizes, inputSizes, opts);
    });
  }
  WorkPtr send(Tensors& tensors, int peer, int tag) override {
    return put([=, host = inHost(tensors)](Backend& b) mutable { return b.send(host, peer, tag); });
  }
  WorkPtr recv(Tensors& tensors, int peer, int tag) override {
    return put([=, host = inHost(tensors)](Backend& b) mutable { return b.recv(host, peer, tag); });
  }

  void startCoalescing() override { grouping_ = true; }
  WorkPtr endCoalescing() override {
    grouping_ = false;
    return run(std::exchange(group_, {}));
  }

 private:
  using Call = std::function<WorkPtr(Backend&)>;

  WorkPtr put(Call call) {
    if (!grouping_) return run({std::move(call)});
    group_.push_back(std::move(call));
    return nullptr;
  }

  /// Behind what is on the current stream; all are begun before any is waited for.
  WorkPtr run(std::vector<Call> calls) {
    c10::Event called(kType);
    called.record(guard().getStream(kDevice));
    called.block(stream_);
    const std::function<void()> task = [gloo = gloo_, calls = std::move(calls)] {
      std::vector<WorkPtr> works;
      for (const Call& call : calls) works.push_back(call(*gloo));
      for (const WorkPtr& work : works) work->wait();
    };
    standInDevicePush(stream_.id(), &task);
    return c10::make_intrusive<StreamWork>(stream_);
  }

  c10::intrusive_ptr<Backend> gloo_;
  c10::Stream stream_;
  bool grouping_ = false;
  std::vector<Call> group_;
};

}  // namespace

PYBIND11_MODULE(xccl_standin, module) {
  py::module_::import("torch._C._distributed_c10d");
  using Options = ProcessGroupXCCL::Options;
  py::class_<ProcessGroupXCCL, c10d::Backend, c10::intrusive_ptr<ProcessGroupXCCL>> group(
      module, "ProcessGroupXCCL");
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(group, "Options")
      .def(py::init([] { return c10::make_intrusive<Options>(); }));
  group.def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                        const c10::intrusive_ptr<Options>& options) {
    return c10::make_intrusive<ProcessGroupXCCL>(store, rank, size, options);
  }));
}
