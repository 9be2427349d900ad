#pragma once

#include <cstddef>
#include <vector>

#include "mscclpp/core.hpp"
#include "names.h"

namespace mscclpp {

/// What Bootstrap::send(vector) of that rank has sent. Throws Error(InvalidUsage) above `most`
/// bytes; what is announced takes no memory before it comes.
std::vector<char> receive(Bootstrap& bootstrap, int peer, int tag, size_t most);

/// Throws Error(RemoteError) if a rank of another host, which the engine has found to be there,
/// names a process of this host: its memory would be written.
void checkOrigin(Bootstrap& bootstrap, int peer, const ProcessName& owner);

}  // namespace mscclpp
