#include "torchcomms/csrc/hooks/debug_server.hpp"

#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include <algorithm>
#include <comms/torchcomms/hooks/FlightRecorderHook.hpp>
#include <string>

#include "ctran/base/json.h"

namespace torch::comms {

namespace {

using c10d::control_plane::Request;
using c10d::control_plane::Response;
using ctran::Json;

/// One that shares what the others remember.
FlightRecorderHook recorder() { return FlightRecorderHook(/*maxEntries=*/1); }

void answer(Response& response, std::string json) {
  response.setContent(std::move(json), "application/json");
  response.setStatus(200);
}

void trace(const Request& request, Response& response) {
  const auto found = request.params().find("onlyactive");
  const bool onlyActive = found != request.params().end() && found->second == "true";
  answer(response, recorder().dump_json(/*includeCompleted=*/!onlyActive));
}

void dump(const Request&, Response& response) {
  const FlightRecorderHook hook = recorder();
  answer(response, Json::object().set("path", hook.dump_file(hook.rank())).print());
}

void health(const Request&, Response& response) {
  const std::vector<std::string> broken = recorder().broken();
  Json names = Json::array({broken.begin(), broken.end()});
  answer(response, Json::object().set("healthy", broken.empty()).set("broken", names).print());
}

}  // namespace

void registerDebugHandlers() {
  const std::vector<std::string> known = c10d::control_plane::getHandlerNames();
  const auto add = [&](const std::string& name, void (*handler)(const Request&, Response&)) {
    // Another build of this package in the process may have been first.
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    c10d::control_plane::registerHandler(name, handler);
  };
  add("torchcomms_fr_trace_json", &trace);
  add("torchcomms_fr_dump_file", &dump);
  add("torchcomms_health_check", &health);
}

}  // namespace torch::comms
