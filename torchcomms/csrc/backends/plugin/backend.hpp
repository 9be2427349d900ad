#pragma once

#include <comms/torchcomms/plugin.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "torchcomms/csrc/backends/builtin_backend.hpp"
#include "torchcomms/csrc/backends/plugin/operation.hpp"

namespace torch::comms {

using PluginEntry = const torchcomms_plugin* (*)(uint32_t hostVersion);

/// Registers the plug-in that `entry` describes as the backend of that name. Throws ctran::Error if
/// it cannot be used.
void registerPlugin(const std::string& backend, PluginEntry entry);

/// A backend that uses a plug-in through comms/torchcomms/plugin.h. Operations that the interface
/// does not have are made of those that it has: an operation on one large tensor becomes one on its
/// parts, a batch becomes its messages, and a child is a communicator of its own that meets at the
/// parent's store.
class PluginBackend final : public BuiltinBackend {
 public:
  PluginBackend(std::string backend, const torchcomms_plugin& plugin)
      : backendName_(std::move(backend)), plugin_(plugin) {}
  ~PluginBackend() override;
  PluginBackend(const PluginBackend&) = delete;
  PluginBackend& operator=(const PluginBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  std::string_view getBackendName() const override { return backendName_; }
  std::string_view getBackendVersion() const override {
    return plugin_.plugin_version ? plugin_.plugin_version : "unknown";
  }

  WorkPtr issue(const Call& call) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }

 private:
  WorkPtr startBatch(const Call& call);
  /// Starts `call` with other inputs and outputs, as the plug-in takes them.
  WorkPtr start(const Call& call, torchcomms_kind kind, const Tensors& inputs,
                const Tensors& outputs);
  void require(OpName name) const;

  const std::string backendName_;
  const torchcomms_plugin plugin_;  ///< has zeros for functions that it does not have
  std::unique_ptr<PluginStore> store_;
  torchcomms_comm* comm_ = nullptr;
  std::vector<std::shared_ptr<PluginOperation>> running_;
  uint64_t splits_ = 0;
};

}  // namespace torch::comms
