#pragma once

#include <chrono>
#include <memory>

namespace ctran {

/// A thread that drives any number of RDMA transports. Without one of their own, those of a process
/// share one. It ends when nobody holds this any more.
class RdmaLoop {
 public:
  /// What it drives.
  class Driven {
   public:
    virtual ~Driven() = default;
    /// Does what can be done now, on the loop's thread. After how many milliseconds it wants to be
    /// called again, without an event, too; negative: never.
    virtual int service() = 0;
  };

  RdmaLoop();
  ~RdmaLoop();
  RdmaLoop(const RdmaLoop&) = delete;
  RdmaLoop& operator=(const RdmaLoop&) = delete;

  /// The one of the process.
  static std::shared_ptr<RdmaLoop> shared();
  /// Whether this thread is one of them.
  static bool isThisThread();

  void add(const std::shared_ptr<Driven>& driven);
  /// When this has returned it is not being serviced any more, unless by this thread.
  void remove(const std::shared_ptr<Driven>& driven);
  /// It services all soon after `fd` has become readable.
  void watch(int fd);
  void unwatch(int fd);
  /// It services all soon.
  void wake();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ctran
