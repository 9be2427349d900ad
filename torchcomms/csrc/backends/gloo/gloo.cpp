#include "torchcomms/csrc/backends/gloo/gloo.hpp"

#include <algorithm>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <stdexcept>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/staged/backend.hpp"
#include "torchcomms/csrc/backends/unknown_hint.hpp"

namespace torch::comms {

namespace {

const ctran::ConfigString kHostname{
    "TORCHCOMM_GLOO_HOSTNAME", "",
    "Name or address of this host on which backend gloo listens; the hint 'hostname' comes first."};
const ctran::ConfigString kInterface{
    "TORCHCOMM_GLOO_INTERFACE", "",
    "Network interface on which backend gloo listens; the hint 'interface' comes first."};

GlooFactory& factory() {
  static GlooFactory made;
  return made;
}

c10::intrusive_ptr<c10d::Backend> makeGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, std::chrono::milliseconds timeout,
                                           const Hints& hints) {
  const GlooDevice device = glooDevice(hints);
  if (!factory()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend gloo is PyTorch's own Gloo, which only Python programs can make",
                       {}, {}, "use backend ctran, or a Python program that imports torchcomms");
  }
  return factory()(store, rank, size, timeout, device);
}

std::shared_ptr<C10dBackend> newGloo() {
  return std::make_shared<C10dBackend>(C10dKind{.name = "gloo", .factory = makeGloo});
}

const BackendRegistration kGloo("gloo", [] { return std::make_shared<StagedBackend>(newGloo); },
                                {.canReconfigure = true});

bool parseBool(const std::string& key, const std::string& value) {
  std::string lower = value;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "yes", "y", "on"}) {
    if (lower == yes) return true;
  }
  for (const char* no : {"0", "false", "no", "n", "off"}) {
    if (lower == no) return false;
  }
  throw std::invalid_argument("Invalid hint value for key '" + key + "': " + value);
}

}  // namespace

void setGlooFactory(GlooFactory made) { factory() = std::move(made); }

GlooDevice glooDevice(const Hints& hints) {
  GlooDevice device;
  for (const auto& [key, value] : hints) {
    if (key == "hostname") {
      device.hostname = value;
    } else if (key == "interface") {
      device.interface = value;
    } else if (key == "lazy") {
      device.lazy = parseBool(key, value);
    } else {
      noteUnknownHint("gloo", key);
    }
  }
  if (device.hostname.empty() && device.interface.empty()) {
    device.hostname = kHostname.get();
    device.interface = kInterface.get();
  }
  if (!device.hostname.empty() && !device.interface.empty()) {
    throw std::invalid_argument("Gloo listens at a hostname or on an interface: name one of them");
  }
  return device;
}

}  // namespace torch::comms
