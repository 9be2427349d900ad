#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace mscclpp {

/// A thread that takes no signals: they are for those of the program.
template <class Body>
std::thread serviceThread(Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;
  return std::thread(std::forward<Body>(body));
}

}  // namespace mscclpp
