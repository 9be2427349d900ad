#include "torchcomms/csrc/backends/nccl/peers.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "ctran/os/process.h"

namespace torch::comms::nccl {

namespace {

/// When a process started, in ticks since boot: with its number, who it is. Empty if there is none.
std::string startOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(')');  // may hold anything but is the only field in parentheses
  if (name == std::string::npos) return {};
  std::istringstream fields(text.substr(name + 1));
  std::string field;
  constexpr int kStart = 20;  // fields after the name up to starttime
  for (int i = 0; i < kStart; ++i) fields >> field;
  return field;
}

/// The host, and which numbers its processes have here.
std::string namespaceOf() {
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) != 0) return {};
  return ctran::hostIdentity() + "/" + std::to_string(info.st_ino);
}

std::string keyOf(int rank) { return "process/" + std::to_string(rank); }
std::string leftKeyOf(int rank) { return "left/" + std::to_string(rank); }

}  // namespace

void Peers::introduce() {
  const pid_t self = getpid();
  store_->set(keyOf(rank_), namespaceOf() + " " + std::to_string(self) + " " + startOf(self));
}

void Peers::leave() noexcept {
  try {
    store_->set(leftKeyOf(rank_), "1");
  } catch (const std::exception&) {
  }
}

void Peers::meet(c10d::Store& store) {
  std::vector<std::string> keys;
  for (int r = 0; r < size_; ++r) keys.push_back(keyOf(r));
  if (!store.check(keys)) return;
  std::vector<std::vector<uint8_t>> values;
  if (store.hasExtendedApi()) {
    values = store.multiGet(keys);
  } else {
    for (const std::string& key : keys) values.push_back(store.get(key));
  }
  const std::string here = namespaceOf();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const std::vector<uint8_t>& value = values.at(r);
    std::istringstream text(std::string(value.begin(), value.end()));
    std::string where;
    std::string start;
    pid_t pid = 0;
    text >> where >> pid >> start;
    if (here.empty() || where != here || pid <= 0) continue;
    ctran::UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    // Whoever has the number now may be somebody else.
    if (startOf(pid) != start) {
      gone_.push_back(r);
    } else if (fd.get() >= 0) {
      alive_.emplace(r, std::move(fd));
    }
  }
  met_ = true;
}

std::vector<int> Peers::findDead(c10d::Store& store) {
  if (!met_) meet(store);
  for (auto one = alive_.begin(); one != alive_.end();) {
    pollfd entry{one->second.get(), POLLIN, 0};
    if (poll(&entry, 1, 0) > 0) {
      gone_.push_back(one->first);
      one = alive_.erase(one);
    } else {
      ++one;
    }
  }
  std::vector<int> dead;
  for (const int r : gone_) {
    if (!store.check({leftKeyOf(r)})) dead.push_back(r);
  }
  return dead;
}

}  // namespace torch::comms::nccl
