#include "torchcomms/csrc/backends/nccl/peers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ctran/os/process.h"

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

/// When a process started, in ticks since boot: with its number, who it is. Empty if there is none.
std::string startOf(pid_t pid) {
  const ctran::UniqueFd file(
      open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t size = file ? read(file.get(), buffer.data(), buffer.size()) : 0;
  const std::string text(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t name = text.rfind(')');  // may hold anything but is the only field in parentheses
  if (name == std::string::npos) return {};
  const std::vector<std::string> fields = words(text.substr(name + 1));
  constexpr size_t kStart = 19;  // of the fields after the name
  return fields.size() > kStart ? fields[kStart] : std::string();
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
    const auto fields = words(std::string(value.begin(), value.end()));
    if (fields.size() != 3) continue;
    const std::string& where = fields[0];
    const std::string& start = fields[2];
    pid_t pid = 0;
    std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), pid);
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
