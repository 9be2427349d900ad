#include <algorithm>
#include <atomic>
#include <comms/torchcomms/TorchCommFactory.hpp>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/builtin_backend.hpp"
#include "torchcomms/csrc/backends/fake/window.hpp"

namespace torch::comms {

namespace {

/// Operations that succeed at once and touch nothing, on any device and for any rank of any size,
/// with no other process: for tests of programs that communicate.
class FakeBackend final : public BuiltinBackend, public std::enable_shared_from_this<FakeBackend> {
 public:
  void init(at::Device device, std::string_view name, const CommOptions& options) override {
    device_ = device;
    options_ = options;
    options_.name = std::string(name);
  }
  void finalize() override {}

  std::string_view getBackendName() const override { return "fake"; }
  std::string_view getBackendVersion() const override { return TORCHCOMMS_VERSION; }

  WorkPtr issue(const Call& call) override {
    if (call.op == OpName::reduce_scatter_quantized) unsupported(call);
    return done();
  }

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override {
    done();
    if (ranks.empty()) return nullptr;
    CommOptions childOptions = options;
    const auto place = std::find(ranks.begin(), ranks.end(), getRank());
    childOptions.rank = static_cast<int>(place - ranks.begin());
    childOptions.size = static_cast<int>(ranks.size());
    auto child = std::make_shared<FakeBackend>();
    child->init(device_, name, childOptions);
    return child;
  }

  bool supportsWindows() const override { return true; }
  std::shared_ptr<TorchCommWindow> new_window() override {
    done();
    return std::make_shared<FakeWindow>(getRank(), getSize(), device_,
                                        [self = shared_from_this()] { return self->done(); });
  }

  bool isAbortSupported() const override { return true; }
  void abort() override { aborted_ = true; }
  bool isAborted() const override { return aborted_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }
  void setHints(const Hints& hints) override { options_.hints = hints; }

  std::string getInitHandle() const override { return handle_; }
  void reconfigure(const ReconfigureOptions& options) override {
    std::vector<std::string> handles = options.init_handles;
    if (!options.ordered) std::sort(handles.begin(), handles.end());
    const auto place = std::find(handles.begin(), handles.end(), handle_);
    if (place == handles.end()) {
      throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                         "this process' own handle is not among those of the members", {},
                         "reconfigure");
    }
    options_.rank = static_cast<int>(place - handles.begin());
    options_.size = static_cast<int>(handles.size());
    aborted_ = false;
  }

 private:
  static std::string newHandle() {
    static std::atomic<int> number{0};
    return "fake:" + std::to_string(number++);
  }

  WorkPtr done() const {
    if (aborted_) {
      throw ctran::Error(ctran::ErrorKind::Aborted,
                         "Communicator '" + options_.name + "' has been aborted");
    }
    return TorchWorkCompleted::shared();
  }

  std::atomic<bool> aborted_{false};
  const std::string handle_ = newHandle();
};

const BackendRegistration kFake("fake", [] { return std::make_shared<FakeBackend>(); },
                                {.needsRendezvous = false, .canReconfigure = true});

}  // namespace

}  // namespace torch::comms
