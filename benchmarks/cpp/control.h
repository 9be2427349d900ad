#pragma once

#include <string>
#include <vector>

#include "benchmarks/cpp/rank.h"

namespace bench {

/// A line-wise text channel between the ranks and whoever tells them what to time. Ranks that wait
/// for a line sleep, so that several libraries can take turns on the same cores.
///
///   rank  -> driver   hello RANK
///   driver -> rank    check OP BYTES
///   rank  -> driver   ok 0 | error MESSAGE
///   driver -> rank    time OP BYTES WARMUP ITERATIONS
///   rank  -> driver   ok SECONDS_PER_CALL | error MESSAGE
///   driver -> rank    plan NAME   (ctran alone; "none": the native algorithm)
///   rank  -> driver   ok 0 | error MESSAGE
///   driver -> rank    record on|off   (ctran alone: whether operations are recorded)
///   rank  -> driver   ok 0
///   driver -> rank    quit
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  /// Connects to a Unix socket.
  explicit Channel(const std::string& path);
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&&) = delete;
  ~Channel();

  void send(const std::string& line);
  /// False when the other side is gone.
  bool receive(std::string& line);

 private:
  int fd_;
  std::string pending_;
};

/// Tells all ranks the same; the largest of their answers. Throws what a rank says is wrong.
double ask(std::vector<Channel>& ranks, const std::string& command);

/// Does what the driver says until it says quit or is gone.
template <Library L>
void serve(Channel& channel, L& library) {
  Rank<L> rank(library);
  channel.send("hello " + std::to_string(library.rank()));
  for (std::string line; channel.receive(line) && line != "quit";) {
    std::istringstream words(line);
    std::string verb, name;
    size_t bytes = 0;
    long warmup = 0, iterations = 0;
    words >> verb >> name >> bytes >> warmup >> iterations;
    try {
      if constexpr (requires { library.usePlan(name); }) {
        if (verb == "plan" || verb == "record") {
          verb == "plan" ? library.usePlan(name) : library.record(name == "on");
          channel.send("ok 0");
          continue;
        }
      }
      const auto op = parseOp(name);
      if (!op) throw std::runtime_error("cannot do '" + line + "'");
      double seconds = 0;
      if (verb == "check") {
        rank.check(*op, bytes);
      } else {
        seconds = rank.time(*op, bytes, warmup, iterations);
      }
      std::ostringstream reply;
      reply << "ok " << seconds;
      channel.send(reply.str());
    } catch (const std::exception& error) {
      std::string message = error.what();
      std::replace(message.begin(), message.end(), '\n', ' ');
      channel.send("error " + message);
    }
  }
}

}  // namespace bench
