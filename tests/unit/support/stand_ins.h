// The stand-ins for a GPU's driver and its compiler, in a process that has loaded no others.
#pragma once

#include "ctran/gpu/runtime.h"

namespace ctran::testing {

/// The streams, events and memory of the stand-in for the driver.
const gpu::Runtime& standInRuntime();

/// Makes this process take the stand-in for the compiler, so that kernels run on the driver's.
/// Throws if it has taken another compiler.
void useStandInCompiler();

/// Modules that the stand-in for the driver has loaded, and pieces of memory that it has made.
unsigned standInSetUps();

}  // namespace ctran::testing
