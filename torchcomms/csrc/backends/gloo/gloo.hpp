#pragma once

#include <optional>
#include <string>

#include "torchcomms/csrc/backends/c10d/backend.hpp"

namespace torch::comms {

/// Where PyTorch's Gloo listens. If it is empty, Gloo picks (GLOO_SOCKET_IFNAME, or the address
/// that this host's name resolves to).
struct GlooDevice {
  std::string hostname;
  std::string interface;
  bool lazy = false;  ///< connects to a rank at the first message to it

  bool isDefault() const { return hostname.empty() && interface.empty() && !lazy; }
};

using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const GlooDevice& device)>;

/// Sets the factory, once, before the first communicator. torch has no headers for its Gloo, only a
/// Python class, so code that has Python passes the factory. The factory throws ctran::Error.
void setGlooFactory(GlooFactory factory);

/// Reads the hints "hostname", "interface" and "lazy", else TORCHCOMM_GLOO_HOSTNAME and
/// TORCHCOMM_GLOO_INTERFACE. Other hints are noted in the log. Throws std::invalid_argument.
GlooDevice glooDevice(const Hints& hints);

}  // namespace torch::comms
