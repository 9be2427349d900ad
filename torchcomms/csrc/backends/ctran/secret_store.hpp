#pragma once

#include <string>

#include "torchcomms/csrc/backends/ctran/store.hpp"

namespace torch::comms {

/// A c10d store for values that no other user may read. The file of a c10d::FileStore is usually
/// readable by all, and keeps what was deleted. So it only gets the name of a second file beside
/// it, which this user alone can read, and which is removed with the key.
class SecretStore final : public ctran::Store {
 public:
  explicit SecretStore(const c10::intrusive_ptr<c10d::Store>& store);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  void remove(const std::string& key) override;

 private:
  std::string fileOf(const std::string& name) const;
  void removeFile(const std::string& key);

  C10dStore keys_;
  std::string path_;  // of the FileStore; empty if it is none
};

}  // namespace torch::comms
