// One rank of an MPI, for compare_cpu.py: mpirun -n N mpi_bench CONTROL_SOCKET CPUS
// The loop is that of ctran-bench; this file says only how MPI is called.

#include <mpi.h>

#include <cstdio>

#include "benchmarks/cpp/control.h"
#include "benchmarks/cpp/placement.h"

namespace {

class MpiLibrary {
 public:
  using Prepared = bench::Call;

  MpiLibrary() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Prepared prepare(const bench::Call& call) const { return call; }

  void run(const Prepared& call) const {
    const int n = int(call.count);
    const float* in = call.input;
    float* out = call.output;
    const MPI_Comm comm = MPI_COMM_WORLD;
    switch (call.op) {
      case bench::Op::AllReduce:
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, comm);
        break;
      case bench::Op::AllGather:
        MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, comm);
        break;
      case bench::Op::ReduceScatter:
        MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, comm);
        break;
      case bench::Op::Broadcast:
        MPI_Bcast(out, n, MPI_FLOAT, 0, comm);
        break;
      case bench::Op::AllToAll:
        MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, comm);
        break;
      case bench::Op::Barrier:
        MPI_Barrier(comm);
        break;
      case bench::Op::Reduce:
        MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, comm);
        break;
      case bench::Op::Gather:
        MPI_Gather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, comm);
        break;
      case bench::Op::Scatter:
        MPI_Scatter(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, comm);
        break;
      case bench::Op::Send:
        MPI_Send(in, n, MPI_FLOAT, call.peer, 0, comm);
        break;
      case bench::Op::Recv:
        MPI_Recv(out, n, MPI_FLOAT, call.peer, 0, comm, MPI_STATUS_IGNORE);
        break;
      default:
        throw std::logic_error("not an operation of MPI");
    }
  }

 private:
  int rank_ = 0;
  int size_ = 0;
};

/// The launcher's word for the rank: it is needed before MPI_Init, which allocates.
int rankFromEnvironment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  throw std::runtime_error("start this program with mpirun");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: mpi_bench CONTROL_SOCKET CPUS|none");
  const int rank = rankFromEnvironment();
  bench::pin(bench::parsePlacement(argv[2], rank + 1), rank);
  MPI_Init(&argc, &argv);
  MpiLibrary library;
  bench::Channel channel{std::string(argv[1])};
  bench::serve(channel, library);
  MPI_Finalize();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "mpi_bench: %s\n", error.what());
  return 1;
}
