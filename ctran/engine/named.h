#pragma once

#include <memory>
#include <string>

#include "ctran/engine/communicator.h"

namespace ctran {

/// The communicators of this process by name and rank, for interfaces that pass no pointers. The
/// last one of a name stands.
void announce(const std::shared_ptr<Communicator>& communicator);
/// Null if there is none, or it is gone.
std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank);

}  // namespace ctran
