#include "ctran/bootstrap/local_store.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/os/private_file.h"

namespace ctran {
namespace {

Error missing(const std::string& key, std::chrono::milliseconds waited) {
  return Error(ErrorKind::Timeout, "nobody set '" + key + "' in the store within " +
                                       std::to_string(waited.count()) + " ms");
}

}  // namespace

void MemoryStore::set(const std::string& key, const std::string& value) {
  std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
    throw missing(key, timeout);
  }
  return values_[key];
}

void MemoryStore::remove(const std::string& key) {
  std::lock_guard lock(mutex_);
  values_.erase(key);
}

std::string DirectoryStore::path(const std::string& key) const {
  std::string name = key;
  for (char& c : name) {
    if (c == '/') c = '%';
  }
  return directory_ + "/" + name;
}

void DirectoryStore::set(const std::string& key, const std::string& value) {
  const std::string target = path(key);
  static std::atomic<uint64_t> drafts{0};
  const std::string draft = target + "." + std::to_string(::getpid()) + "." +
                            std::to_string(drafts.fetch_add(1)) + ".draft";
  writePrivateFile(draft, value);
  if (std::rename(draft.c_str(), target.c_str()) != 0) {
    throw systemError("cannot write " + target, errno);
  }
}

std::string DirectoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  do {
    if (std::ifstream file(path(key), std::ios::binary); file) {
      return {std::istreambuf_iterator<char>(file), {}};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < deadline);
  throw missing(key, timeout);
}

void DirectoryStore::remove(const std::string& key) { std::remove(path(key).c_str()); }

}  // namespace ctran
