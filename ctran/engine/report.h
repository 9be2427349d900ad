#pragma once

#include <string>

#include "ctran/engine/communicator.h"

namespace ctran {

/// Logs a communicator that has just been made, on rank 0 at info, on others at debug: ranks,
/// hosts, transports, memory, and which algorithms serve which sizes.
void logCreation(Communicator& communicator);

/// Formats bytes as "4 KB": with at most three digits, in powers of 1000.
std::string printedBytes(double bytes);

}  // namespace ctran
