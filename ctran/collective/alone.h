#pragma once

#include "ctran/collective/shm_context.h"

namespace ctran {

/// Any collective of a communicator of one rank: its input, reduced or not, becomes its output.
Task copyAlone(ShmContext& shm, const Collective& collective);

}  // namespace ctran
