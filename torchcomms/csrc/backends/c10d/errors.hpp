#pragma once

#include <comms/torchcomms/TorchCommTypes.hpp>
#include <exception>
#include <optional>
#include <string>

namespace torch::comms {

/// Translates what a c10d backend threw in `op` into a ctran::Error. c10d has no kinds of errors,
/// so the kind is read from the text: a timeout, a lost connection, or something else. `peer` is
/// the rank with which the operation was, if it was with one.
std::exception_ptr translated(const std::exception_ptr& error, OpName op, const std::string& comm,
                              std::optional<int> peer);

bool isTimeout(const std::exception_ptr& error);

}  // namespace torch::comms
