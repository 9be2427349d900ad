#include "tests/rdma/peers.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>

namespace ibverbx {
namespace {

constexpr int kPatienceMs = 20'000;

std::pair<int, int> socketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  return {fds[0], fds[1]};
}

/// Whether it ended without a failure.
bool runs(const Role& role, int fd) {
  Channel channel(fd);
  try {
    role(channel);
    return !::testing::Test::HasFailure();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
    return false;
  }
}

[[noreturn]] void runAndExit(const Role& role, int fd) {
  const bool good = runs(role, fd);
  std::fflush(nullptr);
  ::_exit(good ? 0 : 1);
}

/// The exit status of a child that ends within the time, else -1.
int statusOf(pid_t pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  pollfd ended{fd, POLLIN, 0};
  const bool inTime = ::poll(&ended, 1, kPatienceMs) == 1;
  ::close(fd);
  if (!inTime) ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return inTime && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

Channel::~Channel() { ::close(fd_); }

void Channel::write(std::span<const uint8_t> bytes) {
  if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    throw std::system_error(errno, std::generic_category(), "the other end is gone");
  }
}

void Channel::read(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    pollfd readable{fd_, POLLIN, 0};
    if (::poll(&readable, 1, kPatienceMs) != 1) {
      throw std::runtime_error("the other end has said nothing for a long time");
    }
    const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (got <= 0) throw std::runtime_error("the other end has ended");
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

void Channel::meetWhile(const std::function<void()>& again) {
  pollfd readable{fd_, POLLIN, 0};
  while (::poll(&readable, 1, 0) == 0) {
    again();
    ::sched_yield();
  }
  meet();
}

void between(Where where, const Role& here, const Role& there) {
  const auto [ours, theirs] = socketPair();
  if (where == Where::SameProcess) {
    std::thread other([&there, fd = theirs] { runs(there, fd); });
    runs(here, ours);
    other.join();
    return;
  }
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ours);
    runAndExit(there, theirs);
  }
  ::close(theirs);
  runs(here, ours);
  EXPECT_EQ(statusOf(pid), 0) << "of the other process";
}

Victim::Victim(const Role& there) : Victim(there, socketPair()) {}

Victim::Victim(const Role& there, std::pair<int, int> sockets) : channel_(sockets.first) {
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(sockets.first);
    runAndExit(there, sockets.second);
  }
  ::close(sockets.second);
}

void Victim::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

ibv_wc next(IbvCq& cq, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  ibv_wc wc{};
  while (must(cq.pollCq({&wc, 1})) == 0) {
    if (Clock::now() > deadline) throw std::runtime_error("no completion comes");
    ::sched_yield();  // the CPU is soft-RoCE's, too
  }
  return wc;
}

Peer::Peer(Channel& to, size_t bytes, unsigned access, const IbvRtsOptions& rts)
    : memory(bytes),
      mr(must(side.pd.regMr(memory.data(), bytes, access))),
      qp(side.makeQp()),
      channel(to) {
  remote = channel.exchange<Remote>(
      {side.gid.gid, qp.qpNum(), mr.rkey(), reinterpret_cast<uint64_t>(memory.data())});
  side.connect(qp, remote.qpNum, remote.gid, rts);
  channel.meet();
}

ibv_send_wr Peer::request(ibv_wr_opcode opcode, size_t offset, uint32_t bytes) {
  sge = {reinterpret_cast<uint64_t>(memory.data() + offset), bytes, mr.lkey()};
  ibv_send_wr wr{};
  wr.wr_id = 7;
  wr.sg_list = &sge;
  wr.num_sge = bytes > 0;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = remote.address + offset;
  wr.wr.rdma.rkey = remote.rkey;
  return wr;
}

Maybe Peer::post(ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return qp.postSend(&wr, &bad);
}

void Peer::receive(size_t offset, uint32_t bytes) {
  ibv_sge to{reinterpret_cast<uint64_t>(memory.data() + offset), bytes, mr.lkey()};
  ibv_recv_wr wr{11, nullptr, &to, bytes > 0};
  ibv_recv_wr* bad = nullptr;
  must(qp.postRecv(&wr, &bad));
}

ibv_wc Peer::complete(const ibv_send_wr& wr) {
  must(post(wr));
  return next(side.sendCq);
}

}  // namespace ibverbx
