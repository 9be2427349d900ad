#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctran/collective/preference.h"
#include "ctran/collective/shm_algorithms.h"
#include "ctran/select/tunable.h"
#include "ctran/select/tuning_table.h"

namespace ctran {

/// What would run, and why.
struct Explanation {
  struct Alternative {
    std::string algorithm;
    double predicted = 0;            ///< microseconds, by the cost model
    std::optional<double> measured;  ///< microseconds, at the nearest size of the table
    std::string whyNot;              ///< empty if it can serve the call
  };
  std::string algorithm;
  std::string why;
  std::vector<Alternative> alternatives;  ///< that one among them

  Json toJson() const;
};

/// Which native algorithm of one host serves a call: the first that can, of what a hint of the call
/// asks for, what one of the communicator does, what CTRAN_ALGORITHM asks for, what the tuning
/// table says is the fastest, and what the cost model says is. Of a call only what all ranks agree
/// about counts (its kind and how much a rank contributes), and preferences and table are the same
/// on all ranks: so is the choice.
class Selector final : public Tunable {
 public:
  explicit Selector(int size) : size_(size) {}

  void prefer(Preferences hint, Preferences user);
  void use(TuningTable table) override;
  /// Why ranks may not read the memory of others, empty if they may; and whether the cost model is
  /// to think that it pays. The same on all ranks.
  void useReading(std::string whyNot, bool pays);
  const TuningTable& table() const { return table_; }
  std::vector<std::string> candidates(CollectiveKind kind, size_t bytes) const override;
  void force(CollectiveKind kind, std::string_view name) override;

  /// Why one cannot serve a call; empty if it can. `bytes`: see explain().
  std::string whyNot(const ShmChoice& choice, size_t bytes) const;

  /// Costs some nanoseconds for sizes that come again.
  const ShmChoice& choose(const Collective& collective);

  /// `bytes`: that a rank contributes, see contributionBytes. `hints`: of the call, or null.
  Explanation explain(CollectiveKind kind, size_t bytes, const CallHints* hints = nullptr) const;

 private:
  struct Decision {
    const ShmChoice* choice = nullptr;
    CollectiveKind kind{};
    size_t bytes = 0;
    uint64_t hints = 0;
  };
  const ShmChoice* decide(CollectiveKind kind, size_t bytes, const CallHints* hints,
                          std::string* why) const;
  void forget() { decisions_ = {}; }

  const int size_;
  Preferences hint_, user_;
  TuningTable table_;
  const ShmChoice* forced_ = nullptr;
  std::string whyNotReading_ = "only ranks can tell whether they may read each other's memory";
  bool readingPays_ = false;
  std::array<Decision, 64> decisions_;
};

/// Reasons, as an Explanation gives them: `us` microseconds at so many bytes.
inline constexpr const char* kBeingMeasured = "being measured";
std::string whyMeasured(size_t bytes, double us);
std::string whyPredicted(double us);

}  // namespace ctran
