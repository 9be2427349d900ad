#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/nccl/peers.hpp"

namespace torch::comms::nccl {

/// What the ranks of a communicator tell each other outside the library, which cannot say who is
/// missing and does not end the kernels of other ranks: keys in their store. It is used when
/// something may be wrong, so every failure of the store is ignored.
///
/// It uses the store, and not a second communicator of the engine: that would tell a failure to the
/// ranks of its host and to the ranks it is connected to, and it would have no connections between
/// hosts, because data goes over the library's own. Peers learns from the engine who has died.
///
/// The store may be on a host that has gone, and never answer. So the watchdog, which must end what
/// hangs, asks on threads of their own, and does without an answer that does not come.
class OutOfBand : public std::enable_shared_from_this<OutOfBand> {
 public:
  struct News {
    std::optional<ctran::Error> error;  ///< what another rank has announced
    std::vector<int> dead;              ///< ranks of this host that have died without leaving
  };
  /// The ranks that do not wait in an operation; none if they are not known.
  using Missing = std::optional<std::vector<int>>;

  /// Opens one for the ranks that share `store`, which nothing else uses.
  static std::shared_ptr<OutOfBand> open(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  /// Opens one for some of these ranks, under a name that they agree on.
  std::shared_ptr<OutOfBand> part(const std::string& name, int rank, int size) const;

  /// Finds out which ranks run on this host. Called after all ranks have opened theirs. Waits for
  /// it, because the store may be gone with the first rank that dies.
  void meetPeers();
  /// Tells the other ranks that the communicator is broken. The future is ready when that is done,
  /// or has failed. The first error stays.
  std::future<bool> announce(const ctran::Error& error);
  /// Reads what is new. One question at a time.
  std::future<News> read(bool watchPeers);
  /// Says that this rank waits in vain in its operation number `sequence`, and looks for up to
  /// `patience` for ranks that say the same. Returns those that do not, or that wait in an earlier
  /// operation.
  std::future<Missing> findMissing(uint64_t sequence, std::chrono::milliseconds patience);
  /// Returns every rank's text, by rank. Collective. `name` can be used once. Waits for the store.
  /// Throws ctran::Error at the deadline.
  std::vector<std::string> exchange(const std::string& name, const std::string& own,
                                    std::chrono::milliseconds timeout);
  /// Says that this rank will not be missed. Waits some time for the store.
  void leave();

 private:
  OutOfBand(c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<c10d::Store> own, int rank,
            int size);
  /// Runs `question` on a thread of its own. The answer is empty if it throws.
  template <typename Answer, typename Question>
  std::future<Answer> ask(Question question);
  std::optional<ctran::Error> readError();
  /// Waits, under HostWait, for an answer; gives up after `patience`.
  static void await(const std::future<bool>& answer, std::chrono::milliseconds patience);
  void writeError(const ctran::Error& error);
  std::vector<int> awaitOthers(uint64_t sequence, std::chrono::milliseconds patience);
  int blamed(const ctran::Error& error) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  /// A connection of our own, because some thread of the program may wait in the other one.
  const c10::intrusive_ptr<c10d::Store> own_;
  const int rank_;
  const int size_;
  Peers peers_;
};

}  // namespace torch::comms::nccl
