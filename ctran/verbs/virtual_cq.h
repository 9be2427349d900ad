#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "ctran/verbs/objects.h"

namespace ibverbx {

class IbvVirtualQp;

/// One queue over the completion queues of all queue pairs of any number of virtual queue pairs: a
/// completion per message, in the order in which a virtual queue pair's messages were posted.
///
/// It outlives its virtual queue pairs. One thread at a time uses it and all of them.
class IbvVirtualCq {
 public:
  /// Over queues of one device, which it owns; queue pairs are spread over them.
  explicit IbvVirtualCq(std::vector<IbvCq> cqs);
  IbvVirtualCq(const IbvVirtualCq&) = delete;
  IbvVirtualCq& operator=(const IbvVirtualCq&) = delete;

  /// How many of `completions` were filled. A completion's `qp_num` is IbvVirtualQp::qpNum(). An
  /// error is one of a queue itself; its virtual queue pairs are of no use then. Every call makes
  /// progress: fragments that have waited for room are posted here. No allocation.
  Expected<int> pollCq(std::span<ibv_wc> completions);

  /// Arms all its queues, see IbvCq::requestNotify.
  Maybe requestNotify();

  /// The same as pollCq above, as the seeds have it; an error is a completion with
  /// IBV_WC_FATAL_ERR.
  std::vector<ibv_wc> pollCq(int count);

 private:
  friend class IbvVirtualQp;
  /// A side of a virtual queue pair, in the list of those that may have completions to give.
  struct Endpoint {
    IbvVirtualQp* qp = nullptr;
    bool receives = false;
    bool listed = false;
    Endpoint* next = nullptr;
  };
  struct Target {
    IbvVirtualQp* qp;
    uint16_t index;
  };
  struct Physical {
    IbvCq cq;
    int free;  ///< entries that nobody has reserved: a queue never overruns
    std::unordered_map<uint32_t, Target> targets;
  };

  Physical& physical(size_t index) { return physical_[index % physical_.size()]; }
  void list(Endpoint& endpoint);
  void unlist(const Endpoint& endpoint);

  std::vector<Physical> physical_;
  Endpoint* first_ = nullptr;
  Endpoint* last_ = nullptr;
};

}  // namespace ibverbx
