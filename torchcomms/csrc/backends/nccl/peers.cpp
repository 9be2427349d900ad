#include "torchcomms/csrc/backends/nccl/peers.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ctran/engine/peer_watcher.h"
#include "ctran/os/process.h"
#include "ctran/os/unique_fd.h"

namespace torch::comms::nccl {

namespace {

/// The words of a text. (Not by way of streams: their locales are a matter of which C++ library of
/// the process's several gets to make them.)
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  constexpr const char* kSpace = " \n";
  for (size_t begin = text.find_first_not_of(kSpace); begin != std::string::npos;) {
    const size_t end = text.find_first_of(kSpace, begin);
    all.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpace, end);
  }
  return all;
}

/// Returns when a process started, in ticks since boot; with its number this identifies the
/// process. Empty if there is none.
std::string startOf(pid_t pid) {
  const ctran::UniqueFd file(
      ::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t size = file ? read(file.get(), buffer.data(), buffer.size()) : 0;
  const std::string text(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t name = text.rfind(')');  // may hold anything but is the only field in parentheses
  if (name == std::string::npos) return {};
  const std::vector<std::string> fields = words(text.substr(name + 1));
  constexpr size_t kStart = 19;  // of the fields after the name
  return fields.size() > kStart ? fields[kStart] : std::string();
}

/// The host, and which numbers its processes have here; empty if that is not known.
std::string namespaceOf() {
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) != 0) return {};
  return ctran::hostIdentity() + "/" + std::to_string(info.st_ino);
}

std::string countKey() { return "processes/" + namespaceOf(); }
std::string keyOf(int64_t number) { return countKey() + "/" + std::to_string(number); }
std::string leftKeyOf(int rank) { return "left/" + std::to_string(rank); }

template <typename Number>
bool parse(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

Peers::~Peers() {
  for (const uint64_t watch : watches_) ctran::PeerWatcher::unwatch(watch);
}

void Peers::introduce() {
  const pid_t self = getpid();
  const int64_t number = store_->add(countKey(), 1);
  store_->set(keyOf(number), std::to_string(rank_) + " " + std::to_string(self) + " " +
                                 startOf(self) + " " + std::to_string(ctran::processToken()));
}

void Peers::leave(c10d::Store& store) { store.set(leftKeyOf(rank_), "1"); }

void Peers::meet(c10d::Store& store) {
  const std::lock_guard lock(mutex_);
  if (met_) return;
  const int64_t count = store.add(countKey(), 0);
  for (int64_t number = 1; number <= count; ++number) {
    const std::vector<uint8_t> value = store.get(keyOf(number));
    remember(std::string(value.begin(), value.end()));
  }
  met_ = true;
}

void Peers::remember(const std::string& introduction) {
  const std::vector<std::string> fields = words(introduction);
  int rank = 0;
  pid_t pid = 0;
  uint64_t process = 0;
  if (fields.size() != 4 || !parse(fields[0], rank) || !parse(fields[1], pid) ||
      !parse(fields[3], process) || rank == rank_) {
    return;
  }
  ctran::UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (startOf(pid) != fields[2]) return ended_->add(rank);  // another process has its number now
  if (!fd) return;                                          // this kernel has no such descriptors
  watches_.push_back(ctran::PeerWatcher::watch(std::move(fd), process,
                                               [ended = ended_, rank] { ended->add(rank); }));
}

void Peers::Ended::add(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_.push_back(rank);
}

std::vector<int> Peers::Ended::ranks() const {
  const std::lock_guard lock(mutex_);
  return ranks_;
}

std::vector<int> Peers::findDead(c10d::Store& store) {
  meet(store);
  std::vector<int> dead = ended_->ranks();
  std::erase_if(dead, [&](int rank) { return hasLeft(store, rank); });
  return dead;
}

bool Peers::hasLeft(c10d::Store& store, int rank) {
  try {
    return store.check({leftKeyOf(rank)});
  } catch (const std::exception&) {
    return false;  // the store may have died with it
  }
}

}  // namespace torch::comms::nccl
