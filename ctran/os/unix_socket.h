#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ctran/os/socket.h"

namespace ctran {

using Deadline = std::chrono::steady_clock::time_point;

/// Called about ten times a second by whoever waits, and after a signal; what it throws ends the
/// wait.
using Interrupt = std::function<void()>;

/// Abstract Unix sockets: names without files, in the network namespace, gone with their owner.
/// All functions give up with Error(Timeout) at `deadline`; with one that has passed they do not
/// wait at all.
Socket listenAbstract(const std::string& name, int backlog);
/// Empty when nobody listens there.
Socket connectAbstract(const std::string& name, Deadline deadline,
                       const Interrupt& interrupt = nullptr);

/// Waits until at least one of the sockets has something to read, or its peer has hung up; which.
std::vector<size_t> waitReadable(std::span<const int> sockets, Deadline deadline,
                                 const Interrupt& interrupt = nullptr);

/// Whether who has called, or who listens where this end has called, does so as this user or as
/// root.
bool peerIsTrusted(const UniqueFd& socket);

/// The process that has called; 0 if it is not known here.
pid_t peerPid(const UniqueFd& socket);

/// The `op` of the error when this process has no descriptor left for those that were sent, or when
/// too many of this user are on their way until the deadline.
inline constexpr const char* kNoDescriptors = "receiving descriptors";

/// Exactly `bytes`, with up to 200 descriptors attached: `fdCount` of them, or Error(System). An
/// early end of stream is Error(PeerLost). Sending waits while more descriptors of this user
/// are on their way than the system allows (RLIMIT_NOFILE of the sender).
void sendAll(const UniqueFd& socket, std::span<const std::byte> bytes, std::span<const int> fds,
             Deadline deadline, const Interrupt& interrupt = nullptr);
std::vector<UniqueFd> receiveAll(const UniqueFd& socket, std::span<std::byte> bytes, size_t fdCount,
                                 Deadline deadline, const Interrupt& interrupt = nullptr);

}  // namespace ctran
