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

  /// By the hint ncclx::member: "ctran" or "nccl"; and what hints of ctran ask for goes to ctran,
  /// since NCCL knows nothing of them. Throws ctran::Error (InvalidArgument).
  void prefer(const Hints& hints);
  /// Who explains and prepares what ctran serves.
  void explainBy(std::weak_ptr<ctran::Explainer> engine) { engine_ = std::move(engine); }
  void goBy(ctran::Members members) { members_ = std::move(members); }
  const ctran::Members& members() const { return members_; }

  bool hasEngine() const { return noEngine_.empty(); }
  bool hasVendor() const { return noVendor_.empty(); }
  const std::string& noEngine() const { return noEngine_; }
  const std::string& noVendor() const { return noVendor_; }

  /// Whether the vendor's library serves a call for which there is a choice. `canVendor`: it knows
  /// the type and the reduction. `hints`: of the call, or null.
  bool takesVendor(ctran::CollectiveKind kind, size_t bytes, bool canVendor,
                   const ctran::CallHints* hints) const {
    if (!hasVendor()) return false;
    if (!hasEngine()) return true;
    if (!canVendor || asksForEngine(hints, kind)) return false;
    if (forced_) return *forced_;
    if (!(hints && hints->alone) && asksForEngine(standing_.get(), kind)) return false;
    return members_.takesVendor(kind, bytes);
  }

  /// Whether calls go to that member whatever the table says.
  bool isForced(bool vendor) const { return forced_ == vendor; }

  ctran::Explanation explain(ctran::CollectiveKind kind, size_t bytes, ctran::DataType type,
                             const ctran::CallHints* hints) const override;
  /// Why the vendor's library serves a call that it serves.
  std::string whyVendor() const;
  /// "ctran", "nccl", or "" for the table. For measurements.
  void force(const std::string& member) override;
  void prepareCall(ctran::CollectiveKind kind, size_t bytes, ctran::DataType type,
                   ctran::ReduceKind op, std::shared_ptr<const ctran::CallHints> hints) override;
  ctran::TuningTable use(ctran::TuningTable table) override;

  /// Whether hints (or null) ask for an algorithm of this collective, or for an order of its sums.
  static bool asksForEngine(const ctran::CallHints* hints, ctran::CollectiveKind kind);

 private:
  const std::string noEngine_, noVendor_, machine_;
  const int ranks_;
  ctran::Members members_;
  std::weak_ptr<ctran::Explainer> engine_;
  std::shared_ptr<const ctran::CallHints> standing_;  ///< of the communicator, or null
  std::optional<bool> forced_;                        ///< the vendor
  std::string forcedBy_;
};

}  // namespace torch::comms::ncclx
