// ctran-verbs-bench: times one virtual queue pair of ctran/verbs between two processes.

#include <getopt.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/verbs/two_ends.h"
#include "ctran/verbs/virtual_qp.h"

namespace {

using namespace ibverbx;
using namespace two_ends;

constexpr const char* kHelp = R"(usage: ctran-verbs-bench [options]

Times a virtual queue pair between two processes of this host, which it starts itself, and prints
one line of JSON:
  write_bw    writes, of which the receiver hears nothing (of scheme spray alone, as fragments of
              dqplb need its help); perftest has ib_write_bw
  notify_bw   writes with a notice each; perftest has ib_send_bw, whose receiver hears of each, too
  read_bw     reads; perftest has ib_read_bw
  write_lat   half a round trip of writes with a notice; perftest has ib_write_lat
The bytes that arrived last are checked; an error ends the program with status 1.

      --what WHAT        default notify_bw
      --scheme SCHEME    dqplb (default) or spray
  -q, --qps N            queue pairs for data, default 1
  -s, --size N           bytes of a message, default 65536
  -n, --iterations N     messages, or round trips; default 1000
  -d, --device NAME      default: the first
  -x, --gid-index N      default 0
      --fragment N       bytes of a fragment at most, default 262144
      --seconds N        ends with an error after that, default 60
)";

constexpr uint32_t kWindow = 128;       // messages under way, and
constexpr uint32_t kInlineBytes = 220;  // what a work request has room for, as perftest has them
constexpr unsigned kPollsPerYield = 64;

/// Gives the processor away now and then: a device in software needs it, too.
void polledInVain() {
  static unsigned polls = 0;
  if (++polls % kPollsPerYield == 0) ::sched_yield();
}

struct Options {
  std::string what = "notify_bw", device;
  LoadBalancingScheme scheme = LoadBalancingScheme::DQPLB;
  uint32_t qps = 1, size = 65536, iterations = 1000, fragment = 256 * 1024;
  unsigned seconds = 60;
  int gidIndex = 0;
};

template <typename T>
T must(Expected<T> expected) {
  if (expected.hasError()) throw std::runtime_error(expected.error().errStr);
  return std::move(expected).value();
}

/// What the other process must know.
struct Address {
  ibv_gid gid;
  uint32_t rkey;
  uint64_t address;
  uint32_t qpNums[65];
};

/// One end of the connection, and its memory.
class End {
 public:
  End(const Options& options, int socket)
      : options_(options),
        socket_(socket),
        context_(open(options.device)),
        pd_(must(context_.allocPd())),
        sendCq_(queue()),
        recvCq_(queue()),
        gid_(must(context_.queryGid(1, options.gidIndex)).gid),
        qp_(must(IbvVirtualQp::create(context_, pd_, sendCq_, recvCq_, config()))),
        memory_(options.size),
        mr_(must(
            pd_.regMr(memory_.data(), memory_.size(),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ))) {
    connect();
  }

  std::vector<uint8_t>& memory() { return memory_; }

  void post(ibv_wr_opcode opcode) {
    ibv_sge sge{reinterpret_cast<uint64_t>(memory_.data()), options_.size, mr_.lkey()};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {peer_.address, peer_.rkey};
    must(qp_->postSend(&wr, &bad));
  }
  void receive() {
    ibv_recv_wr wr{}, *bad = nullptr;
    must(qp_->postRecv(&wr, &bad));
  }
  /// How many messages are done, or notices here, since the last call.
  uint32_t sent() { return poll(sendCq_); }
  uint32_t notified() { return poll(recvCq_); }

  /// Returns when the other end has called it, too.
  void meet() {
    char mark = 'x';
    exchange(&mark, &mark, 1);
  }

 private:
  static IbvContext open(const std::string& name) {
    for (const IbvDevice& device : must(IbvDevice::ibvGetDeviceList())) {
      if (name.empty() || name == device.name()) return must(device.open());
    }
    throw std::runtime_error("there is no RDMA device " + name);
  }

  IbvVirtualQpConfig config() const {
    IbvVirtualQpConfig made;
    made.scheme = options_.scheme;
    made.numQps = options_.qps;
    made.maxFragmentBytes = options_.fragment;
    made.maxFragmentsPerQp = kWindow;
    made.maxMessages = 2 * kWindow;
    made.maxInlineBytes = kInlineBytes;
    return made;
  }

  std::vector<IbvCq> queue() const {
    const int entries = static_cast<int>(kWindow * (options_.qps + 1));
    std::vector<IbvCq> made;
    made.push_back(must(context_.createCq(entries)));
    return made;
  }

  void connect() {
    const IbvVirtualQpBusinessCard ours = qp_->businessCard();
    Address self{gid_, mr_.rkey(), reinterpret_cast<uint64_t>(memory_.data()), {}};
    std::copy(ours.qpNums.begin(), ours.qpNums.end(), self.qpNums);
    exchange(&self, &peer_, sizeof self);
    IbvVirtualQpBusinessCard card = ours;
    std::copy_n(peer_.qpNums, card.qpNums.size(), card.qpNums.begin());
    IbvRtrOptions path;
    path.remoteGid = peer_.gid;
    path.gidIndex = static_cast<uint8_t>(options_.gidIndex);
    path.mtu = must(context_.queryPort(1)).active_mtu;
    // As many reads at a time as the device can have, as perftest has them.
    const ibv_device_attr& limits = context_.attributes();
    path.maxDestReadAtomic = static_cast<uint8_t>(std::min(limits.max_qp_rd_atom, 255));
    IbvRtsOptions rts;
    rts.maxReadAtomic = static_cast<uint8_t>(std::min(limits.max_qp_init_rd_atom, 255));
    must(qp_->connect(card, path, rts));
    meet();
  }

  uint32_t poll(IbvVirtualCq& cq) {
    ibv_wc completions[16];
    const int count = must(cq.pollCq(completions));
    for (int i = 0; i < count; ++i) {
      if (completions[i].status == IBV_WC_SUCCESS) continue;
      throw std::runtime_error(VerbsLibrary::get().wc_status_str(completions[i].status));
    }
    return static_cast<uint32_t>(count);
  }

  void exchange(const void* ours, void* theirs, size_t bytes) {
    const auto size = static_cast<ssize_t>(bytes);
    if (::send(socket_, ours, bytes, MSG_NOSIGNAL) != size ||
        ::recv(socket_, theirs, bytes, MSG_WAITALL) != size) {
      throw std::runtime_error("the other process has ended");
    }
  }

  Options options_;
  int socket_;
  IbvContext context_;
  IbvPd pd_;
  IbvVirtualCq sendCq_, recvCq_;
  ibv_gid gid_;
  std::unique_ptr<IbvVirtualQp> qp_;
  std::vector<uint8_t> memory_;
  IbvMr mr_;
  Address peer_{};
};

/// Posts `messages` with a window, until as many are done.
template <typename Post, typename Done>
void keepWindow(uint32_t messages, const Post& post, const Done& doneNow) {
  for (uint32_t posted = 0, done = 0; done < messages;) {
    for (; posted < messages && posted - done < kWindow; ++posted) post();
    const uint32_t now = doneNow();
    if (now == 0) polledInVain();
    done += now;
  }
}

/// Messages back to back, as many under way as the window has; the microseconds of all.
double stream(End& end, uint32_t messages, ibv_wr_opcode opcode) {
  const auto start = Clock::now();
  keepWindow(
      messages, [&] { end.post(opcode); }, [&] { return end.sent(); });
  return microsecondsSince(start);
}

void takeNotices(End& end, uint32_t messages) {
  keepWindow(
      messages, [&] { end.receive(); }, [&] { return end.notified(); });
}

/// Round trips; the median of their halves.
double pingPong(End& end, uint32_t messages, bool first) {
  std::vector<double> halves;
  end.receive();
  end.meet();
  uint32_t posted = 0, done = 0;
  const auto notice = [&] {
    while (end.notified() == 0) polledInVain();
  };
  // What need not be done before the message is on its way is done after.
  const auto post = [&] {
    end.post(IBV_WR_RDMA_WRITE_WITH_IMM);
    ++posted;
    end.receive();
    do {
      done += end.sent();
    } while (posted - done == kWindow);
  };
  for (uint32_t i = 0; i < messages; ++i) {
    const auto start = Clock::now();
    if (!first) notice();
    post();
    if (first) notice();
    halves.push_back(microsecondsSince(start) / 2);
  }
  while (done < posted) done += end.sent();
  end.meet();
  return medianOf(std::move(halves));
}

/// What the first process measures: microseconds of all messages, or of one way.
double initiate(End& end, const Options& options) {
  const bool reads = options.what == "read_bw";
  std::fill(end.memory().begin(), end.memory().end(), reads ? 0 : 1);
  end.meet();
  if (options.what == "write_lat") return pingPong(end, options.iterations, true);
  const auto opcode = reads                        ? IBV_WR_RDMA_READ
                      : options.what == "write_bw" ? IBV_WR_RDMA_WRITE
                                                   : IBV_WR_RDMA_WRITE_WITH_IMM;
  const double us = stream(end, options.iterations, opcode);
  end.meet();
  if (reads) check(end.memory(), 2);
  return us;
}

void serve(End& end, const Options& options) {
  const bool reads = options.what == "read_bw";
  std::fill(end.memory().begin(), end.memory().end(), reads ? 2 : 0);
  end.meet();
  if (options.what == "write_lat") {
    pingPong(end, options.iterations, false);
  } else {
    if (options.what == "notify_bw") takeNotices(end, options.iterations);
    end.meet();
  }
  if (!reads) check(end.memory(), 1);
}

void report(const Options& options, double us) {
  const bool latency = options.what == "write_lat";
  const double rate = double(options.size) * options.iterations / us;  // bytes/us: MB/s
  std::printf("{\"what\": \"%s\", \"scheme\": \"%s\", \"qps\": %u, \"bytes\": %u, \"%s\": %.3f}\n",
              options.what.c_str(),
              options.scheme == LoadBalancingScheme::SPRAY ? "spray" : "dqplb", options.qps,
              options.size, latency ? "us" : "mb_per_s", latency ? us : rate);
}

Options parse(int count, char** words) {
  Options options;
  const option longOptions[] = {{"what", required_argument, nullptr, 'w'},
                                {"scheme", required_argument, nullptr, 'S'},
                                {"qps", required_argument, nullptr, 'q'},
                                {"size", required_argument, nullptr, 's'},
                                {"iterations", required_argument, nullptr, 'n'},
                                {"device", required_argument, nullptr, 'd'},
                                {"gid-index", required_argument, nullptr, 'x'},
                                {"fragment", required_argument, nullptr, 'f'},
                                {"seconds", required_argument, nullptr, 't'},
                                {"help", no_argument, nullptr, 'h'},
                                {}};
  const auto number = [] { return static_cast<uint32_t>(std::stoul(optarg)); };
  for (int c; (c = getopt_long(count, words, "q:s:n:d:x:h", longOptions, nullptr)) != -1;) {
    switch (c) {
      case 'w':
        options.what = optarg;
        break;
      case 'S':
        options.scheme = std::strcmp(optarg, "spray") == 0 ? LoadBalancingScheme::SPRAY
                                                           : LoadBalancingScheme::DQPLB;
        break;
      case 'q':
        options.qps = number();
        break;
      case 's':
        options.size = number();
        break;
      case 'n':
        options.iterations = number();
        break;
      case 'd':
        options.device = optarg;
        break;
      case 'x':
        options.gidIndex = static_cast<int>(number());
        break;
      case 'f':
        options.fragment = number();
        break;
      case 't':
        options.seconds = number();
        break;
      default:
        std::fputs(kHelp, c == 'h' ? stdout : stderr);
        std::exit(c == 'h' ? 0 : 2);
    }
  }
  const auto is = [&](const char* what) { return options.what == what; };
  const bool sprays = options.scheme == LoadBalancingScheme::SPRAY;
  if (!(is("write_bw") && sprays) && !is("notify_bw") && !is("read_bw") && !is("write_lat")) {
    std::fputs(kHelp, stderr);
    std::exit(2);
  }
  if (options.qps < 1 || options.qps > 64 || options.iterations < 1) {
    std::fputs("1 to 64 queue pairs, and at least one iteration\n", stderr);
    std::exit(2);
  }
  return options;
}

}  // namespace

int main(int count, char** words) {
  const auto measure = [](End& end, const Options& options) {
    report(options, initiate(end, options));
  };
  return two_ends::run<End>("ctran-verbs-bench", parse(count, words), measure, serve);
}
