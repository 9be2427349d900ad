#pragma once

#include <string>

/// The groups of checks. `kernels` is the source in kernels.cu. Each runs in a fresh process.
namespace litmus {

void sharing(const std::string& kernels);      ///< peer access, descriptors between processes
void memoryModel(const std::string& kernels);  ///< tearing, message passing, scopes, latency, wrap
void aborts(const std::string& kernels);       ///< ending a spinning kernel from the host
void captures(const std::string& kernels);     ///< unjoined work, external events, watchdog queries
void callCosts(const std::string& kernels);    ///< CPU time of driver calls

void allReduce(const std::string& kernels);  ///< one-shot and two-shot: results, failures
void allReduceSpeed(const std::string& kernels);

}  // namespace litmus
