#pragma once

#include <torch/csrc/utils/pybind.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <map>
#include <memory>
#include <string>

#include "torchcomms/csrc/bindings/arguments.hpp"

namespace torch::comms {

/// A backend that a Python class defines: a subclass of torchcomms.TorchCommBackend, whose methods
/// are called with the arguments of the C++ ones, in that order.
///
/// A method gets those of `options`, `hints` and `timeout` that it has parameters for. It returns
/// None when the operation has ended, a TorchWork, or an object with a method `wait`. What is not
/// defined is an error when it is called, but for batches, which become sends and receives, and
/// gather_single.
class PythonBackend final : public TorchCommBackend {
 public:
  /// A shared pointer that keeps the Python object, whose C++ part this is.
  static std::shared_ptr<TorchCommBackend> hold(const pybind11::object& instance);

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override;
  int getSize() const override;
  std::string_view getCommName() const override { return options_.name; }
  std::string_view getBackendName() const override { return backendName_; }
  std::string_view getBackendVersion() const override;
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op,
               const SendOptions& options) override;
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) override;
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                         const BatchP2POptions& options) override;
  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) override;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) override;
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options) override;
  WorkPtr all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                     const AllGatherOptions& options) override;
  WorkPtr all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                       const AllGatherOptions& options) override;
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options) override;
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options) override;
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const std::vector<uint64_t>& output_split_sizes,
                              const std::vector<uint64_t>& input_split_sizes, bool async_op,
                              const AllToAllvSingleOptions& options) override;
  WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                     bool async_op, const AllToAllOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;
  WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                  bool async_op, const ScatterOptions& options) override;
  WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root,
                 bool async_op, const GatherOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  bool isAbortSupported() const override;
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override;

 private:
  /// Which of the options a method takes.
  struct Accepts {
    bool options = false;
    bool hints = false;
    bool timeout = false;
  };

  /// The method of the subclass, or none. Needs the interpreter lock.
  pybind11::function find(const char* name) const;
  pybind11::function require(const char* name) const;
  const Accepts& acceptedBy(const char* name, const pybind11::function& method);
  template <typename Result, typename... Args>
  Result ask(const char* name, Result otherwise, Args&&... args) const;
  template <typename Options, typename... Args>
  WorkPtr call(const char* name, const Options& options, const Args&... args);

  CommOptions options_;
  at::Device device_{at::kCPU};
  std::string backendName_ = "python";
  mutable std::string version_;
  std::map<std::string, Accepts> accepts_;
};

/// TorchCommBackend with what a subclass in Python needs; register_backend.
void addPythonBackends(pybind11::module_& module);

}  // namespace torch::comms
