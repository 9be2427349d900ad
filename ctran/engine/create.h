#pragma once

#include <map>
#include <memory>
#include <string>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"

namespace ctran {

/// A bound for what others say. A host keeps some ten bytes for each rank.
inline constexpr int kMaxRanks = 1 << 20;

/// Throws Error(InvalidArgument) if a hint that begins with "ctran::" is none of a communicator's.
void checkHints(const std::map<std::string, std::string>& hints);

/// Where this rank is, as the hint ctran::host or the environment say: see hostIdentity.
std::string hostOf(const std::map<std::string, std::string>& hints);

/// How long a rank that leaves waits for its last bytes to arrive.
inline constexpr std::chrono::milliseconds kLinger{1000};

/// A name of a communicator that is the same on all ranks, and says nothing about the key.
uint64_t publicNameOf(const JobKey& key, const std::string& name);

/// The rank of the next host to whom this one tells what befalls its own.
int rankToTell(const HostMap& map);

/// What a leader hands over to so many ranks if they share a host.
UniqueFd memoryFor(int size);
/// How much that is: the arena, and behind it what its ranks record.
size_t memoryBytes(int size);

/// A communicator of the ranks of a group, whatever hosts they are on: collective over them.
std::shared_ptr<Communicator> makeCommunicator(const CommunicatorOptions& options, HostGroup group,
                                               Deadline deadline, WaitHooks* hooks);

}  // namespace ctran
