#include <comms/torchcomms/TorchWork.hpp>

namespace torch::comms {

namespace {
HostRuntime theHostRuntime;  // written once, when the bindings are loaded
}  // namespace

void setHostRuntime(const HostRuntime& runtime) { theHostRuntime = runtime; }
const HostRuntime& hostRuntime() { return theHostRuntime; }

const c10::intrusive_ptr<TorchWork>& TorchWorkCompleted::shared() {
  static const c10::intrusive_ptr<TorchWork> work = c10::make_intrusive<TorchWorkCompleted>();
  return work;
}

std::string_view toString(WorkStatus status) {
  switch (status) {
    case WorkStatus::NOT_STARTED:
      return "NOT_STARTED";
    case WorkStatus::INPROGRESS:
      return "INPROGRESS";
    case WorkStatus::COMPLETED:
      return "COMPLETED";
    case WorkStatus::TIMEDOUT:
      return "TIMEDOUT";
    case WorkStatus::ERROR:
      return "ERROR";
  }
  return "unknown";
}

}  // namespace torch::comms
