// ctran-bench: times ctran's operations between processes of this host, which it starts itself.

#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "benchmarks/cpp/placement.h"
#include "benchmarks/cpp/plans.h"
#include "benchmarks/cpp/recorder.h"
#include "benchmarks/cpp/setup.h"
#include "benchmarks/cpp/sockets.h"
#include "benchmarks/cpp/sweep.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/plan/library.h"
#include "ctran/select/plans.h"

namespace {

constexpr const char* kHelp = R"(usage: ctran-bench [options]

Times ctran between processes of this host. The loop: blocking calls back to back, several buffers
in turn, after a warm-up; of the ranks' mean times the slowest; the median over repeats. Before that
the result of every operation and size is checked; a wrong one ends the program with status 1.

float32, sum, root 0. Bytes are the full, world-sized buffer: the one that each rank holds for
all_reduce, broadcast, reduce, send_recv; all that is gathered, scattered or exchanged for the
others, so a block is bytes / ranks, at least one element. send_recv is half a round trip between
ranks 0 and 1; copy is a memcpy on all ranks at once, without communication. GB/s is bytes / time.

  -n, --ranks N        processes, default 2
      --hosts N        count as on so many hosts: over TCP; default 1
      --sockets        a bare TCP socket between 2 ranks instead of ctran (send_recv, barrier)
      --ops LIST       of all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, barrier,
                       reduce, gather, scatter, send_recv, copy; default all
      --sizes LIST     bytes, with K and M; default 8,64,512,4K,32K,256K,1M,2M,16M,64M
      --repeats N      default 7
      --min-ms T       length of one repeat, default 20
      --quick          sizes 8,4K,256K,1M, 3 repeats of 5 ms
      --pin WHERE      auto (a CPU of its own for each rank if there are enough), none, or 0,1,...
      --plans WHICH    all: the plans of the library beside the native algorithms, or shape: those
                       of the same shape
      --recorder       what it costs to record operations: the same with and without it, in turns
      --setup          times new communicators and splits, and looks at their memory, instead
      --json FILE      append a line per operation and size
      --control PATH   take orders from the Unix socket PATH instead (for compare_cpu.py)
)";

class CtranLibrary {
 public:
  using Prepared = ctran::Collective;

  explicit CtranLibrary(std::shared_ptr<ctran::Communicator> comm) : comm_(std::move(comm)) {}
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }

  Prepared prepare(const bench::Call& call) const {
    ctran::Collective collective;
    collective.kind = kindOf(call.op);
    collective.type = ctran::DataType::Float32;
    collective.root = call.peer;
    collective.count = call.count;
    collective.input = reinterpret_cast<const std::byte*>(call.input);
    collective.output = reinterpret_cast<std::byte*>(call.output);
    return collective;
  }

  void run(const Prepared& collective) const { comm_->run(collective); }

  /// Calls are served by a plan of the library from now on, or, of "none", natively.
  void usePlan(const std::string& name) {
    if (plan_) ctran::removePlan(plan_);
    plan_ = 0;
    if (name != "none")
      plan_ = ctran::registerPlan(ctran::plan::makePlan(name, {size()}), {.preferred = true});
  }

  /// Whether operations are recorded from now on.
  void record(bool on) {
    if (comm_->core().recording != nullptr) comm_->core().recording->turn(on);
  }

 private:
  static ctran::CollectiveKind kindOf(bench::Op op) {
    using Kind = ctran::CollectiveKind;
    switch (op) {
      case bench::Op::AllReduce:
        return Kind::AllReduce;
      case bench::Op::AllGather:
        return Kind::AllGather;
      case bench::Op::ReduceScatter:
        return Kind::ReduceScatter;
      case bench::Op::Broadcast:
        return Kind::Broadcast;
      case bench::Op::AllToAll:
        return Kind::AllToAll;
      case bench::Op::Barrier:
        return Kind::Barrier;
      case bench::Op::Reduce:
        return Kind::Reduce;
      case bench::Op::Gather:
        return Kind::Gather;
      case bench::Op::Scatter:
        return Kind::Scatter;
      case bench::Op::Send:
        return Kind::Send;
      case bench::Op::Recv:
        return Kind::Recv;
      default:
        throw std::logic_error("not an operation of ctran");
    }
  }

  std::shared_ptr<ctran::Communicator> comm_;
  uint64_t plan_ = 0;
};

struct Options {
  int ranks = 2;
  int hosts = 1;
  bool sockets = false;
  bool setup = false;
  bool recorder = false;
  std::string pin = "auto";
  std::string control;
  std::string plans;
  bench::SweepOptions sweep;
};

std::vector<std::string> splitList(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

size_t parseBytes(const std::string& text) {
  size_t end = 0;
  const size_t number = std::stoull(text, &end);
  const std::string unit = text.substr(end);
  if (unit.empty()) return number;
  if (unit == "K" || unit == "k") return number << 10;
  if (unit == "M" || unit == "m") return number << 20;
  throw std::invalid_argument("not a size: " + text);
}

void setSizes(bench::SweepOptions& options, const std::string& list) {
  options.sizes.clear();
  for (const std::string& word : splitList(list)) options.sizes.push_back(parseBytes(word));
}

void setOps(bench::SweepOptions& options, const std::string& list) {
  options.ops.clear();
  for (const std::string& word : splitList(list)) {
    const auto op = bench::parseOp(word);
    if (!op) throw std::invalid_argument("no such operation: " + word);
    options.ops.push_back(*op);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  options.sweep.library = "ctran-bench";
  for (const bench::OpInfo& op : bench::kOps) options.sweep.ops.push_back(op.op);
  setSizes(options.sweep, "8,64,512,4K,32K,256K,1M,2M,16M,64M");
  const option names[] = {
      {"ranks", required_argument, nullptr, 'n'},   {"hosts", required_argument, nullptr, 'H'},
      {"sockets", no_argument, nullptr, 'S'},       {"setup", no_argument, nullptr, 'u'},
      {"recorder", no_argument, nullptr, 'R'},      {"ops", required_argument, nullptr, 'o'},
      {"sizes", required_argument, nullptr, 's'},   {"repeats", required_argument, nullptr, 'r'},
      {"min-ms", required_argument, nullptr, 'm'},  {"quick", no_argument, nullptr, 'q'},
      {"pin", required_argument, nullptr, 'p'},     {"json", required_argument, nullptr, 'j'},
      {"control", required_argument, nullptr, 'c'}, {"plans", required_argument, nullptr, 'P'},
      {"help", no_argument, nullptr, 'h'},          {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "n:h", names, nullptr)) != -1;) {
    const std::string value = optarg ? optarg : "";
    switch (c) {
      case 'n':
        options.ranks = std::stoi(value);
        break;
      case 'H':
        options.hosts = std::stoi(value);
        break;
      case 'S':
        options.sockets = true;
        options.sweep.library = "sockets";
        setOps(options.sweep, "send_recv,barrier");
        break;
      case 'u':
        options.setup = true;
        break;
      case 'R':
        options.recorder = true;
        break;
      case 'o':
        setOps(options.sweep, value);
        break;
      case 's':
        setSizes(options.sweep, value);
        break;
      case 'r':
        options.sweep.repeats = std::stoi(value);
        break;
      case 'm':
        options.sweep.minSeconds = std::stod(value) / 1e3;
        break;
      case 'q':
        setSizes(options.sweep, "8,4K,256K,1M");
        options.sweep.repeats = 3;
        options.sweep.minSeconds = 0.005;
        break;
      case 'p':
        options.pin = value;
        break;
      case 'j':
        options.sweep.json = std::fopen(value.c_str(), "ae");
        if (!options.sweep.json) throw std::runtime_error("cannot write " + value);
        break;
      case 'P':
        options.plans = value;
        if (value != "all" && value != "shape") throw std::invalid_argument("--plans " + value);
        break;
      case 'c':
        options.control = value;
        break;
      case 'h':
        std::fputs(kHelp, stdout);
        std::exit(0);
      default:
        std::exit(2);
    }
  }
  if (options.ranks < 2 || options.sweep.repeats < 1 || optind != argc) {
    throw std::invalid_argument("at least 2 ranks and 1 repeat, and no other arguments");
  }
  if (options.sockets && options.ranks != 2) {
    throw std::invalid_argument("--sockets is between 2 ranks");
  }
  return options;
}

/// A directory that is gone when the program is, unless it is killed.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ctran-bench-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The life of one rank, in a process of its own. Returns its exit status.
int runRank(int rank, const Options& options, const std::vector<int>& cpus,
            const std::string& storePath, int controlFd) try {
  bench::pin(cpus, rank);
  bench::Channel channel =
      options.control.empty() ? bench::Channel(controlFd) : bench::Channel(options.control);
  const auto store = std::make_shared<ctran::DirectoryStore>(storePath);
  if (options.sockets) {
    bench::SocketLibrary library(rank, *store);
    bench::serve(channel, library);
    return 0;
  }
  const auto create = [&](const std::string& name) {
    ctran::CommunicatorOptions of;
    of.rank = rank;
    of.size = options.ranks;
    of.name = name;
    of.store = store;
    if (options.hosts > 1) {
      of.hints["ctran::host"] = std::to_string(rank * options.hosts / options.ranks);
    }
    of.timeout = std::chrono::seconds(60);
    return ctran::Communicator::create(of);
  };
  const auto comm = create("bench");
  if (options.setup) {
    channel.send("hello " + std::to_string(rank));
    bench::timeSetup(*comm, create, options.sweep.repeats);
    comm->finalize();
    return 0;
  }
  CtranLibrary library(comm);
  bench::serve(channel, library);
  comm->finalize();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ctran-bench: rank %d: %s\n", rank, error.what());
  return 1;
}

int launch(const Options& options) {
  const std::vector<int> cpus = bench::parsePlacement(options.pin, options.ranks);
  const ScratchDirectory scratch;
  if (options.plans == "shape") bench::preferNativeShape(options.ranks);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  std::vector<bench::Channel> channels;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("no socket pair");
    }
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      channels.clear();
      close(ends[0]);
      _exit(runRank(rank, options, cpus, scratch.path().string(), ends[1]));
    }
    close(ends[1]);
    children.push_back(child);
    channels.emplace_back(ends[0]);
  }

  bool ok = true;
  if (options.control.empty()) {
    for (bench::Channel& channel : channels) {
      std::string hello;
      ok &= channel.receive(hello);
    }
    if (ok && !options.setup) {
      if (options.recorder) {
        ok = bench::sweepRecorder(channels, options.sweep);
      } else {
        ok = options.plans.empty()
                 ? bench::sweep(channels, options.sweep)
                 : bench::sweepPlans(channels, options.sweep, options.plans == "shape");
      }
    }
    for (bench::Channel& channel : channels) {
      if (ok && !options.setup) channel.send("quit");
    }
    channels.clear();
  }
  for (pid_t child : children) {
    if (!ok) kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return launch(parse(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "ctran-bench: %s\n", error.what());
  return 2;
}
