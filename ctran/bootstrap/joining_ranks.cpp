#include "ctran/bootstrap/joining_ranks.h"

#include <algorithm>
#include <utility>

#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/bootstrap/hand_over_messages.h"

namespace ctran::hand_over {
namespace {

constexpr size_t kMaxUnheard = 64;

}  // namespace

JoiningRanks::JoiningRanks(Acceptor& local, Acceptor* acceptor, const JobKey& key, int size,
                           int first, int count)
    : local_(local),
      acceptor_(acceptor),
      size_(size),
      first_(first),
      joiners_(static_cast<size_t>(count)) {
  local_.expect(key);
  if (acceptor_ != nullptr) acceptor_->expect(key, size, BootstrapTree::parentOf(first));
}

bool JoiningRanks::isExpected(int rank) const {
  return rank >= first_ && rank - first_ < static_cast<int>(joiners_.size());
}

bool JoiningRanks::has(int rank) const {
  const Joiner& joiner = joiners_[static_cast<size_t>(rank - first_)];
  return joiner.near || joiner.far;
}

std::vector<int> JoiningRanks::absent() const {
  std::vector<int> ranks;
  for (int r = first_; isExpected(r); ++r) {
    if (!has(r)) ranks.push_back(r);
  }
  return ranks;
}

std::vector<int> JoiningRanks::present() const {
  std::vector<int> ranks;
  for (int r = first_; isExpected(r); ++r) {
    if (has(r)) ranks.push_back(r);
  }
  return ranks;
}

bool JoiningRanks::anyIsFar() const {
  return std::any_of(joiners_.begin(), joiners_.end(),
                     [](const Joiner& joiner) { return static_cast<bool>(joiner.far); });
}

const UniqueFd& JoiningRanks::socketOf(int rank) const {
  const Joiner& joiner = joiners_[static_cast<size_t>(rank - first_)];
  return joiner.near ? joiner.near.fd() : joiner.far.fd();
}

std::vector<int> JoiningRanks::hear(Deadline deadline, const Interrupt& interrupt, int other) {
  std::vector<int> sockets{local_.fd()};
  const size_t unheard = unheard_.size();
  for (const Socket& socket : unheard_) sockets.push_back(socket.get());
  const std::vector<int> ranks = present();
  for (const int r : ranks) sockets.push_back(socketOf(r).get());
  // A descriptor that is none is left alone by poll.
  sockets.push_back(acceptor_ == nullptr ? -1 : acceptor_->fd());
  sockets.push_back(other);
  std::vector<size_t> readable;
  const Deadline until = hasEnded_ ? std::min(deadline, nextLook_) : deadline;
  const int before = present_;
  try {
    readable = waitReadable(sockets, until, interrupt);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Timeout || until == deadline) throw;
  }
  std::vector<int> news = ended();
  if (!news.empty()) return news;
  // From the back, so that removing one does not move the others.
  for (size_t i = readable.size(); i-- > 0;) {
    const size_t index = readable[i];
    if (index == 0) {
      hearNear();
    } else if (index <= unheard) {
      Socket socket = std::move(unheard_[index - 1]);
      unheard_.erase(unheard_.begin() + static_cast<std::ptrdiff_t>(index) - 1);
      admit(std::move(socket));
    } else if (index - 1 - unheard < ranks.size()) {
      news.push_back(ranks[index - 1 - unheard]);
    } else if (index - 1 - unheard == ranks.size()) {
      hearFar();
    } else {
      news.push_back(-1);
    }
  }
  // The wait sees neither while strangers call without a pause.
  if (interrupt) interrupt();
  if (news.empty() && present_ == before && std::chrono::steady_clock::now() >= deadline) {
    throw Error(ErrorKind::Timeout, "ranks did not come in time");
  }
  return news;
}

/// Returns one of the absent ranks.
std::vector<int> JoiningRanks::ended() {
  const Deadline now = std::chrono::steady_clock::now();
  if (!hasEnded_ || now < nextLook_) return {};
  nextLook_ = now + (now - began_);
  for (const int rank : absent()) {
    if (hasEnded_(rank)) return {rank};
  }
  return {};
}

/// Callers from other hosts.
void JoiningRanks::hearFar() {
  acceptor_->poll(
      [this](const Introduction& who) {
        if (who.purpose != Purpose::Join) return Verdict::OtherTarget;
        if (!isExpected(who.rank)) return Verdict::NoSuchRank;
        return has(who.rank) ? Verdict::RankTaken : Verdict::Welcome;
      },
      [this](const Introduction& who, Socket socket) {
        joiner(who.rank).far = std::move(socket);
        ++present_;
      });
}

/// Callers of this host.
void JoiningRanks::hearNear() {
  local_.poll([](const Introduction&) { return Verdict::Welcome; },
              [this](const Introduction&, Socket socket) {
                unheard_.push_back(std::move(socket));
                // One that says nothing must not keep the others out.
                if (unheard_.size() > kMaxUnheard) unheard_.erase(unheard_.begin());
              });
}

/// The caller has proved the key: failures from here on are errors of our own ranks.
void JoiningRanks::admit(Socket socket) {
  HostHello hello{};
  std::vector<UniqueFd> fds;
  try {
    // It is sent in one piece.
    fds = receiveAll(socket.fd(), bytesOf(hello), 1, Deadline{});
  } catch (const Error& error) {
    if (error.op() != kNoDescriptors) return;
    answer(socket.fd(), Reply::NoDescriptor, 0);  // that is no fault of the caller
    throw;
  }
  if (hello.protocol != kProtocol) {
    answer(socket.fd(), Reply::OtherVersion, 0);
    throw versionError(hello.rank);
  }
  if (hello.size != size_) {
    answer(socket.fd(), Reply::OtherSize, static_cast<uint64_t>(size_));
    throw sizeError(hello.rank, hello.size, size_);
  }
  if (!isExpected(hello.rank)) return answer(socket.fd(), Reply::NoSuchRank, 0);
  if (has(hello.rank)) return answer(socket.fd(), Reply::RankTaken, 0);
  Joiner& joiner = this->joiner(hello.rank);
  joiner.brought = std::move(fds[0]);
  joiner.pid = hello.pid;
  joiner.process = hello.process;
  joiner.near = std::move(socket);
  ++present_;
}

}  // namespace ctran::hand_over
