#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommOptions.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <cstdint>
#include <memory>
#include <vector>

namespace torch::comms {

class TorchComm;

/// One send or receive of a batch.
struct P2POp {
  enum class Type : uint8_t { SEND, RECV };

  Type type;
  at::Tensor tensor;
  int peer;
  int tag = 0;  ///< see SendOptions
};

/// Sends and receives that are issued together: none waits for another, so a symmetric exchange
/// cannot deadlock. Only the ranks that exchange data need to take part.
class BatchSendRecv {
 public:
  explicit BatchSendRecv(std::shared_ptr<TorchComm> comm) : comm_(std::move(comm)) {}

  /// Throw ctran::Error when the tensor or the rank cannot be.
  void send(const at::Tensor& tensor, int dst, int tag = 0);
  void recv(const at::Tensor& tensor, int src, int tag = 0);

  /// Issues what has been collected; the list is kept, so that a second call exchanges again.
  /// Throws ctran::Error when there is nothing to issue.
  c10::intrusive_ptr<TorchWork> issue(bool async_op, const BatchP2POptions& options = {});

  const std::shared_ptr<TorchComm>& comm() const { return comm_; }

  std::vector<P2POp> ops;

 private:
  std::shared_ptr<TorchComm> comm_;
};

}  // namespace torch::comms
