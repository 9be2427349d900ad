#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ctran/os/unique_fd.h"

namespace ctran {

/// A descriptor that becomes readable when this process ends, whatever it has forked meanwhile.
UniqueFd openOwnPidFd();

/// Names the machine, as long as it is up.
std::string bootIdentity();

/// Begins with bootIdentity() and '/', and names the host as far as descriptors can be handed over:
/// boot id and network namespace, and CTRAN_HOST, or `host` instead of that.
std::string hostIdentity(const std::string& host = {});

/// A random number that the threads of this process share with nobody: unlike a process id, also
/// across containers. A forked child has another one.
uint64_t processToken();

/// Starts a thread of the engine's own. It takes no signals: they are for the user's threads, whose
/// waits they interrupt. Throws Error(System).
void startThread(const char* name, std::function<void()> body);
/// Whether startThread has started the thread that asks.
bool isOwnThread();

/// "hostname (pid 123)", for people.
std::string processName();

/// From the kernel's generator.
void fillRandom(std::byte* data, size_t bytes);

/// Cores this process may run on.
int availableCores();

}  // namespace ctran
