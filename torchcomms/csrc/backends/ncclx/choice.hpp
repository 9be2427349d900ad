#pragma once

#include <comms/torchcomms/TorchCommOptions.hpp>
#include <optional>
#include <string>

#include "ctran/engine/named.h"
#include "ctran/select/members.h"

namespace torch::comms::ncclx {

/// Which member of a communicator serves a call, and why: what `comm.explain` tells, and what
/// `comm.tune` changes. All ranks have the same.
class Choice final : public ctran::Explainer {
 public:
  /// Why there is no engine, or no library of the vendor; empty if there is. Tables of this
  /// communicator are for `machine` and so many ranks.
  Choice(std::string noEngine, std::string noVendor, std::string machine, int ranks);

  /// By the hint ncclx::member: "ctran" or "nccl". Throws ctran::Error (InvalidArgument).
  void prefer(const Hints& hints);
  void goBy(ctran::Members members) { members_ = std::move(members); }
  const ctran::Members& members() const { return members_; }

  bool hasEngine() const { return noEngine_.empty(); }
  bool hasVendor() const { return noVendor_.empty(); }
  const std::string& noEngine() const { return noEngine_; }
  const std::string& noVendor() const { return noVendor_; }

  /// Whether the vendor's library serves a call for which there is a choice. `canVendor`: it knows
  /// the type and the reduction.
  bool takesVendor(ctran::CollectiveKind kind, size_t bytes, bool canVendor) const {
    if (!hasVendor()) return false;
    if (!hasEngine()) return true;
    if (!canVendor) return false;
    if (forced_) return *forced_;
    return members_.takesVendor(kind, bytes);
  }

  /// Whether calls go to that member whatever the table says.
  bool isForced(bool vendor) const { return forced_ == vendor; }

  ctran::Explanation explain(ctran::CollectiveKind kind, size_t bytes, ctran::DataType type,
                             const ctran::CallHints* hints) const override;
  /// "ctran", "nccl", or "" for the table. For measurements.
  void force(const std::string& member) override;
  ctran::TuningTable use(ctran::TuningTable table) override;

 private:
  const std::string noEngine_, noVendor_, machine_;
  const int ranks_;
  ctran::Members members_;
  std::optional<bool> forced_;  ///< the vendor
  std::string forcedBy_;
};

}  // namespace torch::comms::ncclx
