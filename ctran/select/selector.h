#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/preference.h"
#include "ctran/collective/registry.h"
#include "ctran/select/plans.h"
#include "ctran/select/tunable.h"
#include "ctran/select/tuning_table.h"
#include "ctran/topology/host_map.h"
#include "ctran/trace/recording.h"

namespace ctran {

/// What would run, and why.
struct Explanation {
  struct Alternative {
    std::string algorithm;
    /// Microseconds, by the cost model; plans that are registered and kernels of GPUs have none.
    std::optional<double> predicted;
    std::optional<double> measured;  ///< microseconds, at the nearest size of the table
    std::string whyNot;              ///< empty if it can serve the call
    std::string sizes;               ///< on GPUs: for which it is taken, if nobody names one
  };
  std::string algorithm;
  std::string why;
  std::vector<Alternative> alternatives;  ///< that one among them
  /// What messages to ranks of other hosts go over, as far as there are connections: "rank 3: RDMA
  /// (mlx5_0:1)".
  std::vector<std::string> network;

  Json toJson() const;
};

/// Which algorithm serves a call: the first that can, of what a hint of the call asks for,
/// what one of the communicator does, what CTRAN_ALGORITHM asks for, what the tuning table says is
/// the fastest, and what the cost model says is. Of a call only what all ranks agree about counts
/// (its kind, how much a rank contributes, and what is reduced how), and preferences, table and
/// hosts are the same on all ranks: so is the choice.
class Selector final : public Tunable {
 public:
  /// Of so many ranks on one host.
  explicit Selector(int size);
  /// Of the ranks of several hosts.
  explicit Selector(const HostMap& map);
  /// Of ranks with GPUs in several domains, of which the map is.
  Selector(const HostMap& domains, AlgorithmPlace place);
  /// Of ranks whose GPUs reach each other's memory. What is named here, by hints or by
  /// CTRAN_ALGORITHM, serves or is refused: `choose` and `explain` throw Error(InvalidArgument) if
  /// nothing of what is wanted for the collective can serve the call.
  Selector(int size, const GpuLimits& gpus);

  /// `inRankOrder`: reductions go in the order of the ranks.
  void prefer(Preferences hint, Preferences user, bool inRankOrder = false);
  /// What the hints of the communicator say, and CTRAN_ALGORITHM. Throws Error(InvalidArgument).
  void prefer(const std::map<std::string, std::string>& hints);
  /// Of what all ranks have to prefer alike.
  uint64_t hash() const;
  /// Why ranks may not read the memory of others, empty if they may; and whether the cost model is
  /// to think that it pays. The same on all ranks.
  void useReading(std::string whyNot, bool pays);

  /// Of GPUs in several domains: the network reaches their memory.
  void useGpuDirect() {
    reachesGpus_ = true;
    forget();
  }

  void use(TuningTable table) override;
  const TuningTable& table() const { return table_; }
  std::vector<std::string> candidates(CollectiveKind kind, size_t bytes) const override;
  void force(CollectiveKind kind, std::string_view name) override;

  /// Costs some nanoseconds for sizes that come again.
  const Algorithm& choose(const Collective& collective);
  /// From now on choices are recorded, with their reasons.
  void record(Recording* recording) { recording_ = recording; }
  /// Why it was the last choice; empty of one rank alone.
  std::string_view why() const { return why_; }
  /// The number of the last choice there; 0 if it is not recorded.
  uint32_t recorded() const { return recorded_; }

  /// The plans of this process that are for the communicator of that name compete from now on.
  /// `whyNot`: why one cannot serve a call here, empty if it can; the same on all ranks.
  using PlanCheck = std::function<std::string(const PlanAlgorithm&, const Collective&)>;
  void usePlans(std::string communicator, PlanCheck whyNot = nullptr) {
    communicator_ = std::move(communicator);
    whyNotPlan_ = std::move(whyNot);
  }
  /// The registered plan that serves a call: named by the hints of the call, else a preferred one,
  /// else named by other hints, else the fastest in the tuning table. Null: none of these. Costs as
  /// `choose`, and less while there are no plans.
  std::shared_ptr<const PlanAlgorithm> choosePlan(const Collective& collective) {
    return planVersion() == 0 ? nullptr : planFor(collective);
  }

  /// `bytes`: that a rank contributes, see contributionBytes. `partialSums`: whether sums of
  /// partial sums are as good as sums, see toleratesPartialSums; of what does not reduce they are.
  /// `hints`: of the call, or null. `type`: matters to functions of the program alone.
  Explanation explain(CollectiveKind kind, size_t bytes, bool partialSums = true,
                      const CallHints* hints = nullptr,
                      std::optional<DataType> type = std::nullopt) const;
  /// The same of a call on GPUs, of which the type and the reduction count.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                      const CallHints* hints) const;

 private:
  static constexpr size_t kKinds = static_cast<size_t>(CollectiveKind::AllToAllVDynamic) + 1;

  /// What the choice depends on.
  struct Call {
    CollectiveKind kind{};
    size_t bytes = 0;
    bool partialSums = true;
    bool inRankOrder = false;
    uint64_t hints = 0;  ///< their hash
    size_t element = 1;  ///< of GPUs, as in AlgorithmQuery
    size_t largest = 0;  ///< the same
    bool operator==(const Call&) const = default;
  };
  struct Decision {
    const Algorithm* algorithm = nullptr;
    Call call;
    std::string why;
    uint32_t recorded = 0;
  };
  using Algorithms = std::vector<const Algorithm*>;

  /// What the choice of a plan depends on.
  struct PlanCall {
    Call call;
    size_t blockBytes = 0;
    DataType type{};
    ReduceKind op{};
    bool operator==(const PlanCall&) const = default;
  };
  struct PlanDecision {
    uint64_t version = 0;  ///< of the registered plans; 0: nothing is known yet
    PlanCall call;
    std::shared_ptr<const PlanAlgorithm> plan;
  };
  std::shared_ptr<const PlanAlgorithm> planFor(const Collective& collective);
  const RegisteredPlan* decidePlan(const PlanCall& call, const CallHints* hints,
                                   std::string* why) const;
  std::string whyNot(const RegisteredPlan& plan, const PlanCall& call) const;
  PlanCall planCallOf(const Call& call) const;

  void find(AlgorithmPlace place);
  const Algorithms& algorithmsFor(CollectiveKind kind) const;
  AlgorithmQuery queryOf(const Call& call) const;
  Call callOf(CollectiveKind kind, size_t bytes, bool partialSums, const CallHints* hints) const;
  /// `named`: by the user, who may prefer what rounds more often.
  std::string whyNot(const Algorithm& algorithm, const Call& call, bool named) const;
  Call gpuCallOf(const Collective& collective) const;
  const Algorithm* decideBySize(const Call& call, std::string* why) const;
  void refuse(const Call& call, const Preferences& wanted, const char* source) const;
  Explanation explain(const PlanCall& planned, const CallHints* hints) const;
  const Algorithm* decide(const Call& call, const CallHints* hints, std::string* why) const;
  void forget() {
    decisions_ = {};
    why_ = {};
    planDecisions_ = {};
  }

  const int size_;
  const std::optional<HostMap> map_;     // of several hosts
  const std::optional<GpuLimits> gpus_;  // of GPUs
  std::array<Algorithms, kKinds> algorithms_;
  Preferences hint_, user_;
  bool inRankOrder_ = false;
  TuningTable table_;
  CollectiveKind forcedKind_{};
  const Algorithm* forced_ = nullptr;
  std::string whyNotReading_ = "only ranks can tell whether they may read each other's memory";
  bool readingPays_ = false;
  bool reachesGpus_ = false;
  std::array<Decision, 64> decisions_;
  std::optional<std::string> communicator_;  // whose plans compete
  PlanCheck whyNotPlan_;
  std::string forcedPlan_;
  std::array<PlanDecision, 16> planDecisions_;
  Recording* recording_ = nullptr;
  uint32_t recorded_ = 0;
  std::string_view why_;
};

/// Reasons, as an Explanation gives them: `us` microseconds at so many bytes.
inline constexpr const char* kBeingMeasured = "being measured";
std::string whyMeasured(size_t bytes, double us);
std::string whyPredicted(double us);

}  // namespace ctran
