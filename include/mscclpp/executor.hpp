#pragma once

#include <memory>
#include <string>

#include <mscclpp/core.hpp>
#include <mscclpp/gpu.hpp>
#include <mscclpp/gpu_data_types.hpp>

namespace mscclpp {

enum class PacketType { LL8, LL16 };

/// A program as the DSL writes it, in a file.
class MSCCLPP_API ExecutionPlan {
 public:
  /// Throws Error(InvalidUsage) if the file cannot be read.
  ExecutionPlan(const std::string& planPath, int rank);

  const std::string& name() const;
  const std::string& collective() const;
  /// Bytes of the messages that it is for.
  size_t minMessageSize() const;
  size_t maxMessageSize() const;
  const std::string& json() const;

 private:
  std::string name_;
  std::string collective_;
  std::string json_;
  size_t least_;
  size_t most_;
};

/// Executes plans on the engine, for communicators whose bootstrap is a TcpBootstrap. The verifier
/// has looked at a plan before it is executed; any count of elements will do.
class MSCCLPP_API Executor {
 public:
  explicit Executor(std::shared_ptr<Communicator> comm);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Collective, with the reductions that the plan names. Sizes are in bytes, and belong together:
  /// the output of an all-gather is as large as all inputs, and plans that promise no result have
  /// chunks of one size. Throws Error(ExecutorError) if they do not, if `rank` is not this one, if
  /// the buffers are not in memory of the host, and if the plan is wrong, mixes reductions or says
  /// what cannot be executed here.
  void execute(int rank, void* sendbuff, void* recvBuff, size_t sendBuffSize, size_t recvBuffSize,
               DataType dataType, const ExecutionPlan& plan, cudaStream_t stream,
               PacketType packetType = PacketType::LL16);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp
