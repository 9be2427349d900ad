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

/// What the ranks of a communicator tell each other beside the library, which cannot say who is
/// missing and ends nobody else's kernels: through keys in their store. Used when something may be
/// wrong, so every failure of the store is swallowed.
///
/// It is the store, and not a communicator of the engine beside the library's: that tells a failure
/// to the ranks of its host and to those it is connected to, and beside a library which has its own
/// connections there are none between hosts. Who has died, Peers knows from the engine.
///
/// The store may be on a host that has gone, and never answer. So the watchdog, which must end what
/// hangs, asks on threads of their own, and does without an answer that does not come.
class Bulletin : public std::enable_shared_from_this<Bulletin> {
 public:
  struct News {
    std::optional<ctran::Error> error;  ///< what another rank has announced
    std::vector<int> dead;              ///< ranks of this host that have died and not left
  };
  /// The ranks that do not wait in an operation; none if that is not known.
  using Missing = std::optional<std::vector<int>>;

  /// For the ranks that share `store`, which nobody else uses.
  static std::shared_ptr<Bulletin> open(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  /// For some ranks of this one, under a name that they agree on.
  std::shared_ptr<Bulletin> part(const std::string& name, int rank, int size) const;

  /// Once all ranks have opened theirs: finds out which of them run on this host. Waits for it: the
  /// store may be gone with the first who dies.
  void meetPeers();
  /// Tells the others that the communicator is broken; ready when that is done, or has failed. The
  /// first word stays.
  std::future<bool> announce(const ctran::Error& error);
  /// What is new. One question at a time.
  std::future<News> read(bool watchPeers);
  /// Says that this rank waits in vain in its operation number `sequence`, and looks for up to
  /// `patience` who says the same: the ranks that do not, or that wait in an earlier one.
  std::future<Missing> findMissing(uint64_t sequence, std::chrono::milliseconds patience);
  /// Every rank's text, in their order; collective. `name` serves once. Waits for the store. Throws
  /// ctran::Error, by the deadline.
  std::vector<std::string> exchange(const std::string& name, const std::string& own,
                                    std::chrono::milliseconds timeout);
  /// Says that this rank will not be missed. Waits for the store, for a while.
  void leave();

 private:
  Bulletin(c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<c10d::Store> own, int rank,
           int size);
  /// Runs `question` on a thread of its own; an empty answer if it throws.
  template <typename Answer, typename Question>
  std::future<Answer> ask(Question question);
  std::optional<ctran::Error> readError();
  /// Waits, under HostWait, for an answer that others do without in the end.
  static void await(const std::future<bool>& answer, std::chrono::milliseconds patience);
  void writeError(const ctran::Error& error);
  std::vector<int> awaitOthers(uint64_t sequence, std::chrono::milliseconds patience);
  int blamed(const ctran::Error& error) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  /// A connection of our own: some thread of the program may wait in the other one.
  const c10::intrusive_ptr<c10d::Store> own_;
  const int rank_;
  const int size_;
  Peers peers_;
};

}  // namespace torch::comms::nccl
