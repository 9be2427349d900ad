// Those who are not of the job: processes of another user, and of this one without the key.
#pragma once

#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctran/os/unix_socket.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {

inline bool canBecomeNobody() { return ::geteuid() == 0 && !kThreadSanitizer; }

/// This process is one of another user from now on.
inline void becomeNobody() {
  constexpr uid_t kNobody = 65534;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0) {
    throw std::runtime_error("becoming another user");
  }
}

inline Socket acceptWithin(const Socket& listener, Deadline deadline) {
  const int sockets[] = {listener.get()};
  while (true) {
    Socket socket = acceptOne(listener);
    if (socket) return socket;
    waitReadable(sockets, deadline);
  }
}

/// All that comes until the other end hangs up, with how many descriptors.
struct Heard {
  std::vector<std::byte> bytes;
  size_t descriptors = 0;

  bool contains(std::span<const std::byte> secret) const {
    return ::memmem(bytes.data(), bytes.size(), secret.data(), secret.size()) != nullptr;
  }
};

inline Heard hearAll(const Socket& socket, Deadline deadline) {
  Heard heard;
  const int sockets[] = {socket.get()};
  while (true) {
    std::byte part[4096];
    iovec into{part, sizeof part};
    alignas(cmsghdr) char control[4096];
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EAGAIN) {
      waitReadable(sockets, deadline);
      continue;
    }
    if (n <= 0) return heard;
    heard.bytes.insert(heard.bytes.end(), part, part + n);
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
      heard.descriptors += (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    }
  }
}

/// Another user's process that has taken a name, and takes whatever its callers say.
class NameThief {
 public:
  explicit NameThief(const std::string& name)
      : process_(1, [name, told = told_](int) {
          becomeNobody();
          const Socket listener = listenAbstract(name, 64);
          told->listens = true;
          while (true) {
            const auto later = std::chrono::steady_clock::now() + kGuard;
            const Heard heard = hearAll(acceptWithin(listener, later), later);
            told->bytes += heard.bytes.size() + heard.descriptors;
            ++told->callers;
          }
        }) {
    awaitFlag(told_->listens);
  }

  size_t callers() const { return told_->callers; }
  size_t loot() const { return told_->bytes; }

 private:
  struct Told {
    std::atomic<bool> listens;
    std::atomic<size_t> callers, bytes;
  };
  Shared<Told> told_;
  ForkedRanks process_;
};

}  // namespace ctran::testing
