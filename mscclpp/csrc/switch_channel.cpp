#include "mscclpp/switch_channel.hpp"

#include <algorithm>
#include <set>

namespace mscclpp {

SwitchChannel::DeviceHandle SwitchChannel::deviceHandle() const {
  DeviceHandle handle{};
  handle.devicePtr = own_;
  handle.ranks = static_cast<int>(memories_.size());
  for (size_t r = 0; r < memories_.size(); ++r) handle.buffers[r] = memories_[r].data();
  handle.bufferSize = memories_.empty() ? 0 : memories_[0].size();
  return handle;
}

void* SwitchChannel::getDevicePtr() const { return own_; }

NvlsConnection::NvlsConnection(std::shared_ptr<Communicator> communicator, std::vector<int> ranks,
                               size_t bufferSize)
    : communicator_(std::move(communicator)), ranks_(std::move(ranks)), bufferSize_(bufferSize) {
  const int own = communicator_->bootstrap()->getRank();
  if (std::find(ranks_.begin(), ranks_.end(), own) == ranks_.end()) {
    throw Error("rank " + std::to_string(own) + " is none of those of the switch channel",
                ErrorCode::InvalidUsage);
  }
  if (std::set<int>(ranks_.begin(), ranks_.end()).size() < ranks_.size()) {
    throw Error("a rank of the switch channel is named twice", ErrorCode::InvalidUsage);
  }
  if (ranks_.size() > SwitchChannelDeviceHandle::kMaxRanks) {
    throw Error("a switch channel has at most 72 ranks", ErrorCode::InvalidUsage);
  }
}

SwitchChannel NvlsConnection::bindAllocatedMemory(CUdeviceptr devicePtr, size_t size) {
  constexpr int kTag = 0x7377'6974;
  if (size > bufferSize_) {
    throw Error(std::to_string(size) + " bytes to bind, where " + std::to_string(bufferSize_) +
                    " were announced",
                ErrorCode::InvalidUsage);
  }
  const int own = communicator_->bootstrap()->getRank();
  SwitchChannel channel;
  channel.own_ = reinterpret_cast<void*>(devicePtr);
  const RegisteredMemory mine =
      communicator_->registerMemory(channel.own_, size, Transport::CudaIpc);
  for (const int rank : ranks_) {
    if (rank != own) communicator_->sendMemory(mine, rank, kTag);
  }
  for (const int rank : ranks_) {
    channel.memories_.push_back(rank == own ? mine : communicator_->recvMemory(rank, kTag).get());
    if (channel.memories_.back().size() != size) {
      throw Error("rank " + std::to_string(rank) + " binds " +
                      std::to_string(channel.memories_.back().size()) + " bytes, rank " +
                      std::to_string(own) + " " + std::to_string(size),
                  ErrorCode::InvalidUsage);
    }
    channel.memories_.back().data();  // throws if it cannot be reached
  }
  return channel;
}

std::shared_ptr<NvlsConnection> connectNvlsCollective(std::shared_ptr<Communicator> comm,
                                                      std::vector<int> allRanks,
                                                      size_t bufferSize) {
  return std::make_shared<NvlsConnection>(std::move(comm), std::move(allRanks), bufferSize);
}

}  // namespace mscclpp
