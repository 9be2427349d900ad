#pragma once

#include <string>

#include "benchmarks/cpp/operation.h"
#include "ctran/bootstrap/store.h"

namespace bench {

/// What the operating system gives without a library: blocking calls on one TCP connection between
/// two ranks of this host. Send, receive and barrier.
class SocketLibrary {
 public:
  using Prepared = Call;

  /// Connects; the ranks tell each other the port through `store`.
  SocketLibrary(int rank, ctran::Store& store);
  SocketLibrary(const SocketLibrary&) = delete;
  SocketLibrary& operator=(const SocketLibrary&) = delete;
  ~SocketLibrary();

  int rank() const { return rank_; }
  int size() const { return 2; }
  Prepared prepare(const Call& call) const { return call; }
  void run(const Prepared& call) const;

 private:
  const int rank_;
  int fd_ = -1;
};

}  // namespace bench
