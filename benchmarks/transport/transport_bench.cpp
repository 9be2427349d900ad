// ctran-transport-bench: times RDMA transports between two processes, as ctran-verbs-bench times
// virtual queue pairs, with the same output.

#include <getopt.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/verbs/two_ends.h"
#include "ctran/rdma/transport.h"

namespace {

using namespace ctran;
using namespace two_ends;

constexpr const char* kHelp = R"(usage: ctran-transport-bench [options]

Times an RDMA transport between two processes of this host, which it starts itself, and prints one
line of JSON:
  write_bw    writes of which the receiver hears nothing
  notify_bw   writes with a notice each
  read_bw     reads
  write_lat   half a round trip of writes with a notice
CTRAN_IB_HCA, CTRAN_IB_GID_INDEX and CTRAN_IB_QPS choose devices and queue pairs. The bytes that
arrived last are checked; an error ends the program with status 1.

      --what WHAT        default notify_bw
  -s, --size N           bytes of a message, default 65536
  -n, --iterations N     messages, or round trips; default 1000
      --seconds N        ends with an error after that, default 60
)";

constexpr size_t kWindow = 128;  // messages under way

struct Options {
  std::string what = "notify_bw";
  size_t size = 65536;
  unsigned iterations = 1000, seconds = 60;
};

class End {
 public:
  End(const Options& options, int socket)
      : socket_(socket),
        memory_(options.size),
        registration_(RdmaRegistration::of(memory_.data(), memory_.size(), -1)) {
    transport_.connect(exchange(transport_.bind()));
    remote_ = {std::stoull(exchange(std::to_string(reinterpret_cast<uint64_t>(memory_.data())))),
               options.size, exchange(registration_->key().text())};
  }

  std::vector<uint8_t>& memory() { return memory_; }
  RdmaFuture write(bool notify) { return transport_.write(span(), remote_, notify); }
  RdmaFuture read() { return transport_.read(span(), remote_); }
  RdmaFuture wait() { return transport_.waitForWrite(); }
  /// Returns when the other end has called it, too.
  void meet() { exchange("x"); }

 private:
  RdmaSpan span() { return spanOf(registration_, memory_.data(), memory_.size()); }

  std::string exchange(const std::string& ours) {
    char theirs[8192] = {};
    if (::send(socket_, ours.data(), ours.size(), MSG_NOSIGNAL) < 0 ||
        ::recv(socket_, theirs, sizeof theirs - 1, 0) <= 0) {
      throw std::runtime_error("the other process has ended");
    }
    return theirs;
  }

  const int socket_;
  std::vector<uint8_t> memory_;
  std::shared_ptr<RdmaRegistration> registration_;
  RdmaTransport transport_;
  RdmaRemote remote_;
};

/// Messages back to back, as many under way as the window has; the microseconds of all.
template <typename Begin>
double stream(unsigned messages, const Begin& begin) {
  const auto start = Clock::now();
  std::deque<RdmaFuture> underWay;
  for (unsigned i = 0; i < messages; ++i) {
    if (underWay.size() == kWindow) {
      underWay.front().get();
      underWay.pop_front();
    }
    underWay.push_back(begin());
  }
  for (const RdmaFuture& each : underWay) each.get();
  return microsecondsSince(start);
}

/// Round trips; the median of their halves.
double pingPong(End& end, unsigned messages, bool first) {
  std::vector<double> halves;
  end.meet();
  for (unsigned i = 0; i < messages; ++i) {
    const auto start = Clock::now();
    if (!first) end.wait().get();
    const RdmaFuture written = end.write(true);
    if (first) end.wait().get();
    halves.push_back(microsecondsSince(start) / 2);
    written.get();
  }
  end.meet();
  return medianOf(std::move(halves));
}

double initiate(End& end, const Options& options) {
  const bool reads = options.what == "read_bw";
  std::fill(end.memory().begin(), end.memory().end(), reads ? 0 : 1);
  end.meet();
  if (options.what == "write_lat") return pingPong(end, options.iterations, true);
  const bool notifies = options.what == "notify_bw";
  const double us =
      stream(options.iterations, [&] { return reads ? end.read() : end.write(notifies); });
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
    if (options.what == "notify_bw") stream(options.iterations, [&] { return end.wait(); });
    end.meet();
  }
  if (!reads) check(end.memory(), 1);
}

void report(const Options& options, double us) {
  const bool latency = options.what == "write_lat";
  const double rate = double(options.size) * options.iterations / us;  // bytes/us: MB/s
  std::printf("{\"what\": \"%s\", \"scheme\": \"transport\", \"bytes\": %zu, \"%s\": %.3f}\n",
              options.what.c_str(), options.size, latency ? "us" : "mb_per_s", latency ? us : rate);
}

Options parse(int count, char** words) {
  Options options;
  const option longOptions[] = {{"what", required_argument, nullptr, 'w'},
                                {"size", required_argument, nullptr, 's'},
                                {"iterations", required_argument, nullptr, 'n'},
                                {"seconds", required_argument, nullptr, 't'},
                                {"help", no_argument, nullptr, 'h'},
                                {}};
  const auto number = [] { return static_cast<unsigned>(std::stoul(optarg)); };
  for (int c; (c = getopt_long(count, words, "s:n:h", longOptions, nullptr)) != -1;) {
    switch (c) {
      case 'w':
        options.what = optarg;
        break;
      case 's':
        options.size = number();
        break;
      case 'n':
        options.iterations = number();
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
  if ((!is("write_bw") && !is("notify_bw") && !is("read_bw") && !is("write_lat")) ||
      options.size < 1 || options.iterations < 1) {
    std::fputs(kHelp, stderr);
    std::exit(2);
  }
  return options;
}

}  // namespace

int main(int count, char** words) {
  const auto measure = [](End& end, const Options& options) {
    report(options, initiate(end, options));
  };
  return two_ends::run<End>("ctran-transport-bench", parse(count, words), measure, serve);
}
