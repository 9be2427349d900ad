#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "ctran/bootstrap/store.h"

namespace ctran {

/// A store for ranks that are threads of one process.
class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  void remove(const std::string& key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/// A store for processes of one user that see one directory, which must exist. Each key is a file
/// that nobody else can read.
class DirectoryStore : public Store {
 public:
  explicit DirectoryStore(std::string directory) : directory_(std::move(directory)) {}
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  void remove(const std::string& key) override;

 private:
  std::string path(const std::string& key) const;

  std::string directory_;
};

}  // namespace ctran
