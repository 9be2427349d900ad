#pragma once

#include <string>

#include "torchcomms/csrc/backends/ctran/store.hpp"

namespace torch::comms {

/// A c10d store for what no other user may read. A c10d::FileStore, whose file all may read as a
/// rule and keeps what was deleted, gets but the name of a file beside it, which is this user's
/// alone and goes when the key is removed.
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
