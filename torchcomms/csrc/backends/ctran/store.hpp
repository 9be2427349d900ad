#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ctran/bootstrap/store.h"

namespace torch::comms {

/// A c10d store as a store of the engine. Blocks under HostWait; Ctrl-C ends the wait.
class C10dStore final : public ctran::Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  void remove(const std::string& key) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace torch::comms
