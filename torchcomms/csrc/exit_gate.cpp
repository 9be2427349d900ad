#include "torchcomms/csrc/exit_gate.hpp"

#include <unistd.h>

#include <atomic>
#include <thread>

namespace torch::comms {

namespace {

std::atomic<std::thread::id> gCloser{};  ///< of nobody while the gate is open
std::atomic<int> gInside{0};

}  // namespace

bool ExitGate::isClosed() noexcept {
  const std::thread::id closer = gCloser.load();
  return closer != std::thread::id() && closer != std::this_thread::get_id();
}

bool ExitGate::enter() noexcept {
  // In this order, as `close` writes first and then looks for those inside.
  gInside.fetch_add(1);
  if (!isClosed()) return true;
  leave();
  return false;
}

void ExitGate::leave() noexcept { gInside.fetch_sub(1); }

void ExitGate::stay() {
  while (true) ::pause();
}

void ExitGate::close(std::chrono::milliseconds limit) {
  gCloser = std::this_thread::get_id();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (gInside.load() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace torch::comms
