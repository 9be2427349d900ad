// A backend in C++ that counts what it is asked for and lets backend ctran do it. Built against the
// headers of one torchcomms and one torch, see CMakeLists.txt; then
//
//     export TORCHCOMMS_BACKEND_LIB_PATH_COUNTING=$PWD/libcounting.so
//
// and new_comm("counting", ...). Its version says how many operations there have been.
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <comms/torchcomms/TorchCommPlugin.hpp>
#include <memory>
#include <string>
#include <utility>

using namespace torch::comms;

namespace {

class Counting final : public TorchCommBackend {
 public:
  Counting() = default;
  explicit Counting(std::shared_ptr<TorchCommBackend> inner) : inner_(std::move(inner)) {}

  void init(at::Device device, std::string_view name, const CommOptions& options) override {
    inner_ = TorchCommFactory::get().create_backend("ctran", device, std::string(name), options);
  }
  void finalize() override { inner_->finalize(); }
  int getRank() const override { return inner_->getRank(); }
  int getSize() const override { return inner_->getSize(); }
  std::string_view getCommName() const override { return inner_->getCommName(); }
  std::string_view getBackendName() const override { return "counting"; }
  std::string_view getBackendVersion() const override {
    version_ = std::to_string(count_) + " operations";
    return version_;
  }
  const CommOptions& getOptions() const override { return inner_->getOptions(); }
  const at::Device& getDevice() const override { return inner_->getDevice(); }

  WorkPtr send(const at::Tensor& t, int dst, bool async, const SendOptions& o) override {
    return counted().send(t, dst, async, o);
  }
  WorkPtr recv(at::Tensor& t, int src, bool async, const RecvOptions& o) override {
    return counted().recv(t, src, async, o);
  }
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async,
                         const BatchP2POptions& o) override {
    return counted().batch_op_issue(ops, async, o);
  }
  WorkPtr broadcast(at::Tensor& t, int root, bool async, const BroadcastOptions& o) override {
    return counted().broadcast(t, root, async, o);
  }
  WorkPtr all_reduce(at::Tensor& t, const ReduceOp& op, bool async,
                     const AllReduceOptions& o) override {
    return counted().all_reduce(t, op, async, o);
  }
  WorkPtr reduce(at::Tensor& t, int root, const ReduceOp& op, bool async,
                 const ReduceOptions& o) override {
    return counted().reduce(t, root, op, async, o);
  }
  WorkPtr all_gather(const Tensors& out, const at::Tensor& in, bool async,
                     const AllGatherOptions& o) override {
    return counted().all_gather(out, in, async, o);
  }
  WorkPtr all_gather_v(const Tensors& out, const at::Tensor& in, bool async,
                       const AllGatherOptions& o) override {
    return counted().all_gather_v(out, in, async, o);
  }
  WorkPtr all_gather_single(at::Tensor& out, const at::Tensor& in, bool async,
                            const AllGatherSingleOptions& o) override {
    return counted().all_gather_single(out, in, async, o);
  }
  WorkPtr reduce_scatter(at::Tensor& out, const Tensors& in, const ReduceOp& op, bool async,
                         const ReduceScatterOptions& o) override {
    return counted().reduce_scatter(out, in, op, async, o);
  }
  WorkPtr reduce_scatter_v(at::Tensor& out, const Tensors& in, const ReduceOp& op, bool async,
                           const ReduceScatterOptions& o) override {
    return counted().reduce_scatter_v(out, in, op, async, o);
  }
  WorkPtr reduce_scatter_single(at::Tensor& out, const at::Tensor& in, const ReduceOp& op,
                                bool async, const ReduceScatterSingleOptions& o) override {
    return counted().reduce_scatter_single(out, in, op, async, o);
  }
  WorkPtr all_to_all_single(at::Tensor& out, const at::Tensor& in, bool async,
                            const AllToAllSingleOptions& o) override {
    return counted().all_to_all_single(out, in, async, o);
  }
  WorkPtr all_to_all_v_single(at::Tensor& out, const at::Tensor& in,
                              const std::vector<uint64_t>& outSplits,
                              const std::vector<uint64_t>& inSplits, bool async,
                              const AllToAllvSingleOptions& o) override {
    return counted().all_to_all_v_single(out, in, outSplits, inSplits, async, o);
  }
  WorkPtr all_to_all(const Tensors& out, const Tensors& in, bool async,
                     const AllToAllOptions& o) override {
    return counted().all_to_all(out, in, async, o);
  }
  WorkPtr barrier(bool async, const BarrierOptions& o) override {
    return counted().barrier(async, o);
  }
  WorkPtr scatter(at::Tensor& out, const Tensors& in, int root, bool async,
                  const ScatterOptions& o) override {
    return counted().scatter(out, in, root, async, o);
  }
  WorkPtr gather(const Tensors& out, const at::Tensor& in, int root, bool async,
                 const GatherOptions& o) override {
    return counted().gather(out, in, root, async, o);
  }

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override {
    auto child = inner_->split(ranks, name, options);
    return child ? std::make_shared<Counting>(std::move(child)) : nullptr;
  }

 private:
  TorchCommBackend& counted() {
    ++count_;
    return *inner_;
  }

  std::shared_ptr<TorchCommBackend> inner_;
  int count_ = 0;
  mutable std::string version_;
};

}  // namespace

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION TORCHCOMM_BACKEND_ABI_VERSION.data()
#endif

extern "C" DynamicLoaderInterface create_dynamic_loader_counting() {
  return {
      [] { return static_cast<TorchCommBackend*>(new Counting); },
      [](TorchCommBackend* backend) { delete backend; },
      [] { return static_cast<const char*>(PLUGIN_VERSION); },
  };
}
