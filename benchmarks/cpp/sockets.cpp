#include "benchmarks/cpp/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace bench {
namespace {

constexpr const char* kPort = "port";

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

void sendAll(int fd, const void* data, size_t bytes) {
  for (size_t sent = 0; sent < bytes;) {
    const ssize_t n = ::send(fd, static_cast<const char*>(data) + sent, bytes - sent, MSG_NOSIGNAL);
    if (n < 0) throw std::system_error(errno, std::generic_category(), "send");
    sent += static_cast<size_t>(n);
  }
}

void receiveAll(int fd, void* data, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = ::recv(fd, static_cast<char*>(data) + got, bytes - got, MSG_WAITALL);
    if (n <= 0) throw std::runtime_error("the other rank's socket ended");
    got += static_cast<size_t>(n);
  }
}

}  // namespace

SocketLibrary::SocketLibrary(int rank, ctran::Store& store) : rank_(rank) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int made = checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  if (rank == 0) {
    checked(::bind(made, generic, sizeof address), "bind");
    checked(::listen(made, 1), "listen");
    socklen_t length = sizeof address;
    checked(::getsockname(made, generic, &length), "getsockname");
    store.set(kPort, std::to_string(ntohs(address.sin_port)));
    fd_ = checked(::accept4(made, nullptr, nullptr, SOCK_CLOEXEC), "accept");
    ::close(made);
  } else {
    const std::string port = store.get(kPort, std::chrono::seconds(60));
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    checked(::connect(made, generic, sizeof address), "connect");
    fd_ = made;
  }
  const int on = 1;
  checked(::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
}

SocketLibrary::~SocketLibrary() { ::close(fd_); }

void SocketLibrary::run(const Prepared& call) const {
  const size_t bytes = call.count * sizeof(float);
  char token = 0;
  switch (call.op) {
    case Op::Send:
      return sendAll(fd_, call.input, bytes);
    case Op::Recv:
      return receiveAll(fd_, call.output, bytes);
    case Op::Barrier:
      sendAll(fd_, &token, sizeof token);
      return receiveAll(fd_, &token, sizeof token);
    default:
      throw std::invalid_argument("a bare socket does not have " + std::string(info(call.op).name));
  }
}

}  // namespace bench
