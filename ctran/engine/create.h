#pragma once

#include <map>
#include <memory>
#include <string>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"

namespace ctran {

/// The most ranks that a peer may claim. A host keeps tens of bytes for each rank.
inline constexpr int kMaxRanks = 1 << 20;

/// Throws Error(InvalidArgument) if a hint that begins with "ctran::" is not one of a
/// communicator's.
void checkHints(const std::map<std::string, std::string>& hints);

/// Returns `wanted`. Throws Error(InvalidArgument) if it names algorithms of GPUs for tensors of
/// the CPU, or the other way round.
Preferences checkedPreferences(Preferences wanted, bool gpus);

/// Returns the identity of this rank's host, as the hint ctran::host or the environment says it,
/// see hostIdentity.
std::string hostOf(const std::map<std::string, std::string>& hints);

/// How long a rank that leaves waits for its last bytes to arrive.
inline constexpr std::chrono::milliseconds kLinger{1000};

/// Returns a number for a communicator that is the same on all ranks and reveals nothing about the
/// key.
uint64_t publicNameOf(const JobKey& key, const std::string& name);

/// Returns the rank of the next host that this rank tells of failures on its own host.
int rankToTell(const HostMap& map);

/// Makes the memory that a leader hands over to `size` ranks if they share a host.
UniqueFd memoryFor(int size);
/// Returns the size of that memory: the arena, and behind it what its ranks record.
size_t memoryBytes(int size);

/// Makes a communicator of the ranks of a group, whatever hosts they are on. Collective over them.
std::shared_ptr<Communicator> makeCommunicator(const CommunicatorOptions& options, HostGroup group,
                                               Deadline deadline, WaitHooks* hooks);

}  // namespace ctran
