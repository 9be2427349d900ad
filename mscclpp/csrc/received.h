#pragma once

#include <cstddef>
#include <vector>

#include "mscclpp/core.hpp"

namespace mscclpp {

/// What Bootstrap::send(vector) of that rank has sent. Throws Error(InvalidUsage) above `most`
/// bytes; what is announced takes no memory before it comes.
std::vector<char> receive(Bootstrap& bootstrap, int peer, int tag, size_t most);

/// Whether the engine has found that rank on this host, whatever it says itself; true where ranks
/// have met without the engine.
bool isOnThisHost(const Bootstrap& bootstrap, int peer);

}  // namespace mscclpp
