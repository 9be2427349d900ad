#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/collective/hosts_algorithms.h"
#include "ctran/select/selector.h"
#include "ctran/select/tunable.h"

namespace ctran {

/// Which native algorithm between hosts serves a call: the first that can, of what a hint of the
/// call asks for, what one of the communicator does, what CTRAN_ALGORITHM asks for, what the tuning
/// table says is the fastest, and what the cost model says is. Of a call only what all ranks agree
/// about counts (its kind, how much a rank contributes, and what is reduced how), and preferences,
/// table and hosts are the same on all ranks: so is the choice.
class HostsSelector final : public Tunable {
 public:
  /// Of the hints of a communicator, and CTRAN_ALGORITHM. Throws Error(InvalidArgument).
  HostsSelector(const HostMap& map, const std::map<std::string, std::string>& hints);

  /// Of what all ranks have to prefer alike.
  uint64_t hash() const;

  std::vector<std::string> candidates(CollectiveKind kind, size_t bytes) const override;
  void force(CollectiveKind kind, std::string_view name) override;
  void use(TuningTable table) override;
  const TuningTable& table() const { return table_; }

  /// Costs some nanoseconds for sizes that come again.
  const HostsChoice& choose(const Collective& collective);

  /// `bytes`: that a rank contributes, see contributionBytes. `partialSums`: whether sums of
  /// partial sums are as good as sums, see toleratesPartialSums; of what does not reduce they are.
  /// `hints`: of the call, or null.
  Explanation explain(CollectiveKind kind, size_t bytes, bool partialSums,
                      const CallHints* hints = nullptr) const;

 private:
  static constexpr size_t kKinds = static_cast<size_t>(CollectiveKind::AllToAllV) + 1;

  struct Call {
    CollectiveKind kind{};
    size_t bytes = 0;
    bool partialSums = false;
    uint64_t hints = 0;  ///< their hash
    bool inRankOrder = false;
    bool operator==(const Call&) const = default;
  };
  struct Decision {
    const HostsChoice* choice = nullptr;
    Call call;
  };
  const std::vector<HostsChoice>& choicesFor(CollectiveKind kind) const {
    return choices_[static_cast<size_t>(kind)];
  }
  /// `named`: by the user, who may prefer what rounds more often.
  std::string whyNot(const HostsChoice& choice, const Call& call, bool named) const;
  Call callOf(CollectiveKind kind, size_t bytes, bool partialSums, const CallHints* hints) const;
  const HostsChoice* decide(const Call& call, const CallHints* hints, std::string* why) const;
  void forget() { decisions_ = {}; }

  HostMap map_;
  Preferences hint_, user_;
  bool inRankOrder_;
  TuningTable table_;
  std::array<std::vector<HostsChoice>, kKinds> choices_;
  CollectiveKind forcedKind_{};
  const HostsChoice* forced_ = nullptr;
  std::array<Decision, 64> decisions_;
};

}  // namespace ctran
