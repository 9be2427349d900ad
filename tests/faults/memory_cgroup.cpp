#include "tests/faults/memory_cgroup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace ctran::testing {
namespace {

constexpr long kBytes = 32 << 20;

bool write(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text << std::flush;
  return static_cast<bool>(out);
}

}  // namespace

MemoryCgroup::MemoryCgroup() {
  const std::string name = "ctran-soak-" + std::to_string(::getpid());
  whyNot_ = "this machine has no memory cgroups";
  for (const auto& [root, limit] : {std::pair{"/sys/fs/cgroup/memory/", "/memory.limit_in_bytes"},
                                    std::pair{"/sys/fs/cgroup/", "/memory.max"}}) {
    struct stat about {};
    if (::stat(root, &about) != 0) continue;
    const std::string folder = root + name;
    if (::mkdir(folder.c_str(), 0755) != 0) {
      whyNot_ = folder + ": " + std::strerror(errno);
      continue;
    }
    if (write(folder + limit, std::to_string(kBytes))) {
      write(folder + "/memory.swap.max", "0");
      folder_ = folder;
      whyNot_.clear();
      return;
    }
    whyNot_ = folder + limit + " cannot be set";
    ::rmdir(folder.c_str());
  }
}

MemoryCgroup::~MemoryCgroup() {
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

void MemoryCgroup::take(pid_t process) const {
  write(folder_ + "/cgroup.procs", std::to_string(process));
}

}  // namespace ctran::testing
