#pragma once

#include <string>

namespace torch::comms {

/// Notes in the log that a backend does not know a hint, unless torch passes it to all backends.
void noteUnknownHint(const char* backend, const std::string& key);

}  // namespace torch::comms
