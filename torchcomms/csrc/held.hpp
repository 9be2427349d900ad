#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "ctran/os/process.h"
#include "torchcomms/csrc/exit_gate.hpp"

namespace torch::comms {

/// Lets go of it soon, on a thread of its own that has the interpreter's lock then; at once where
/// there is no interpreter. Throws if there can be no such thread.
void letGoElsewhere(std::shared_ptr<void> owned);

/// Owns something, such as tensors, until an operation has ended. When it goes it may ask for the
/// interpreter's lock, which a program may keep for long: threads of ours, which drive operations
/// and watch them, do not wait for it.
template <typename Owned>
class Held {
 public:
  explicit Held(Owned owned) : owned_(std::move(owned)) {}
  ~Held() {
    if (ctran::isOwnThread()) {
      try {
        letGoElsewhere(std::make_shared<Owned>(std::move(owned_)));
      } catch (const std::exception&) {  // no memory, or no thread: here, then
      }
    } else if (ExitGate::enter()) {
      owned_ = Owned();
      ExitGate::leave();
    } else {
      static_cast<void>(new Owned(std::move(owned_)));  // for ever
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Owned owned_;
};

/// As an operation takes it.
template <typename Owned>
std::shared_ptr<void> held(Owned owned) {
  return std::make_shared<Held<Owned>>(std::move(owned));
}

}  // namespace torch::comms
