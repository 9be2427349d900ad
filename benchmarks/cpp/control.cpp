#include "benchmarks/cpp/control.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Channel::Channel(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) throw std::runtime_error("too long: " + path);
  path.copy(address.sun_path, path.size());
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    fail("connecting to " + path);
  }
}

Channel::Channel(Channel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), pending_(std::move(other.pending_)) {}

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

void Channel::send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) fail("writing to the control channel");
    if (n > 0) sent += size_t(n);
  }
}

bool Channel::receive(std::string& line) {
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return true;
    }
    char buffer[512];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    pending_.append(buffer, size_t(n));
  }
}

double ask(std::vector<Channel>& ranks, const std::string& command) {
  for (Channel& rank : ranks) rank.send(command);
  double largest = 0;
  for (Channel& rank : ranks) {
    std::string reply;
    if (!rank.receive(reply)) throw std::runtime_error("a rank died in " + command);
    if (reply.rfind("ok ", 0) != 0) throw std::runtime_error(reply);
    largest = std::max(largest, std::stod(reply.substr(3)));
  }
  return largest;
}

}  // namespace bench
