// How operations of a GPU domain fail: who is waited for, who has left, what kernels report.
#include <algorithm>
#include <thread>

#include "ctran/base/rank_list.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/gpu_domain.h"

namespace ctran {
namespace {

using std::chrono::milliseconds;

/// How long a kernel may take to end and to report, once it has been told to.
constexpr milliseconds kReportPatience{200};

}  // namespace

std::vector<int> GpuDomain::awaitedByKernels(int rank) const {
  device::Report& report = memory_.controlBlock(rank).report;
  std::vector<int> awaited;
  if (std::atomic_ref(report.state).load(std::memory_order_acquire) == 0) return awaited;
  for (int r = 0; r < control_.size(); ++r) {
    const uint32_t epoch = std::atomic_ref(report.waitedFor[r]).load(std::memory_order_relaxed);
    if (r != rank && epoch != 0 && epoch == std::atomic_ref(report.epoch).load()) {
      awaited.push_back(r);
    }
  }
  return awaited;
}

std::vector<int> GpuDomain::named(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = nameOf(rank);
  return ranks;
}

std::vector<int> GpuDomain::missing(uint64_t number) const {
  std::vector<int> missing;
  for (int r = 0; number != 0 && r < control_.size(); ++r) {
    const uint64_t issued = memory_.controlBlock(r).issued.load(std::memory_order_acquire);
    if (r != control_.rank() && issued < number) missing.push_back(r);
  }
  return missing;
}

std::optional<Error> GpuDomain::leftWithout(uint64_t number) const {
  Core& core = control_.core();
  for (int r = 0; r < control_.size(); ++r) {
    const auto& state = core.board.control(r).state;
    if (state.load(std::memory_order_acquire) != Board::RankState::Left) continue;
    if (memory_.controlBlock(r).issued.load(std::memory_order_acquire) >= number) continue;
    const Error left = core.leftError(r);
    return names_.empty() ? left
                          : Error(left.kind(),
                                  "rank " + std::to_string(nameOf(r)) + " has left communicator '" +
                                      control_.name() + "' while others still need it",
                                  {nameOf(r)}, {}, left.hint());
  }
  return std::nullopt;
}

Error GpuDomain::timedOut(const std::string& what, uint64_t number, milliseconds timeout) {
  std::vector<int> late = named(missing(number));
  std::string found = late.empty() ? "" : "; it has not been called on rank " + listed(late);
  if (late.empty()) {
    stop();
    const auto until = std::chrono::steady_clock::now() + kReportPatience;
    while (late.empty() && std::chrono::steady_clock::now() < until) {
      late = named(awaitedByKernels(control_.rank()));
      std::this_thread::sleep_for(milliseconds(1));
    }
    found = late.empty() ? "; its kernel has not begun: something before it on its stream waits"
                         : "; its kernel waited for rank " + listed(late);
  }
  return {ErrorKind::Timeout,
          what + " has not ended within " + std::to_string(timeout.count()) + " ms on rank " +
              std::to_string(nameOf(control_.rank())) + found,
          late,
          {},
          "do all ranks run, and call the same operations in the same order?"};
}

/// Ranks whose collectives differ, among those that both still remember.
std::optional<Error> GpuDomain::mismatch() {
  const GpuControlBlock& own = memory_.controlBlock(control_.rank());
  const uint64_t issued = own.issued.load(std::memory_order_acquire);
  for (int r = 0; r < control_.size(); ++r) {
    if (r == control_.rank()) continue;
    const GpuControlBlock& theirs = memory_.controlBlock(r);
    const uint64_t both = std::min(issued, theirs.issued.load(std::memory_order_acquire));
    std::optional<OperationRecord> mine, other;
    for (uint64_t number = both; number > 0; --number) {
      const auto a = own.operations.find(number);
      const auto b = theirs.operations.find(number);
      if (!a || !b || a->signature == b->signature) break;
      mine = a;
      other = b;
    }
    if (!mine) continue;
    return Error(ErrorKind::Mismatch,
                 "rank " + std::to_string(nameOf(control_.rank())) + " called " + describe(*mine) +
                     ", but rank " + std::to_string(nameOf(r)) + " called " + describe(*other),
                 {nameOf(control_.rank()), nameOf(r)}, {},
                 "all ranks have to call the same collectives in the same order");
  }
  return std::nullopt;
}

bool GpuDomain::hasFailed() const {
  GpuControlBlock& block = memory_.controlBlock(control_.rank());
  return control_.hasFailed() ||
         std::atomic_ref(block.report.state).load(std::memory_order_acquire) != 0 ||
         std::atomic_ref(block.control.abort).load(std::memory_order_acquire) != 0 ||
         functionTrouble().has_value();
}

std::optional<Error> GpuDomain::functionTrouble() const {
  const std::shared_ptr<FunctionGroup> group = functions();
  return group ? group->trouble() : std::nullopt;
}

std::optional<Error> GpuDomain::trouble() {
  try {
    control_.core().throwIfFailed();
  } catch (const Error& error) {
    stop();
    return error;
  }
  if (auto error = mismatch()) {
    fail(*error);
    return error;
  }
  device::Report& report = memory_.controlBlock(control_.rank()).report;
  const uint32_t state = std::atomic_ref(report.state).load(std::memory_order_acquire);
  if (state == device::kRefused) {
    Error error = refused(report.refusal);
    fail(error);
    return error;
  }
  const std::vector<int> awaited = named(awaitedByKernels(control_.rank()));
  if (state == device::kTimedOut) {
    Error error(ErrorKind::Timeout,
                "a kernel of communicator '" + control_.name() + "' on rank " +
                    std::to_string(nameOf(control_.rank())) + " waited too long for rank " +
                    listed(awaited),
                awaited, {}, "do all ranks replay the same graphs in the same order?");
    fail(error);
    return error;
  }
  if (auto error = functionTrouble()) {
    fail(*error);
    return error;
  }
  return std::nullopt;
}

/// Of rows, all ranks say the same: they have looked at the same numbers. Of a message, its
/// receiver does.
Error GpuDomain::refused(const device::Refusal& refusal) const {
  const int from = static_cast<int>(refusal.from), to = static_cast<int>(refusal.to);
  if (refusal.why == device::kRefusedMessage) {
    const auto message = [&](int64_t bytes, uint32_t tag) {
      const std::string text = std::to_string(bytes) + " bytes";
      return tag == 0 ? text : text + " with tag " + std::to_string(tag);
    };
    return {ErrorKind::Mismatch,
            "rank " + std::to_string(from) + " of communicator '" + control_.name() +
                "' sent rank " + std::to_string(to) + ' ' +
                message(refusal.amount, refusal.tags[0]) + ", which expected " +
                message(refusal.limit, refusal.tags[1]) + " next",
            {from, to},
            {},
            "messages of GPUs match in the order of the calls, whatever their tags; what a rank "
            "sends another, that has to expect"};
  }
  const std::string what = "all_to_all_v of communicator '" + control_.name() + "': rank " +
                           std::to_string(from) + " sends rank " + std::to_string(to) + ' ' +
                           std::to_string(refusal.amount) + " rows, ";
  const std::string limit = std::to_string(refusal.limit);
  switch (refusal.why) {
    case device::kRefusedSend:
      return {ErrorKind::InvalidArgument,
              what + "but its input has " + limit + " left",
              {from},
              {},
              "input_split_sizes must be at least 0, and sum up to at most the rows of input"};
    case device::kRefusedExpected:
      return {ErrorKind::Mismatch,
              what + "which expects " + limit,
              {from, to},
              {},
              "what rank i sends rank j, rank j has to expect from rank i"};
    default:
      return {ErrorKind::Mismatch,
              what + "which has room for " + limit + " more",
              {from, to},
              {},
              "give the output the size of all that the others may send"};
  }
}

void GpuDomain::stop() {
  if (!control_.core().belongsHere()) return;
  std::atomic_ref(memory_.controlBlock(control_.rank()).control.abort)
      .store(1, std::memory_order_release);
  if (const std::shared_ptr<FunctionGroup> group = functions()) {
    group->end(Error(ErrorKind::Aborted, "communicator '" + control_.name() + "' has ended"));
  }
}

void GpuDomain::fail(const Error& error) {
  control_.core().fail(error);
  if (const std::shared_ptr<FunctionGroup> group = functions()) group->end(error);
  for (int r = 0; r < control_.size(); ++r) {
    std::atomic_ref(memory_.controlBlock(r).control.abort).store(1, std::memory_order_release);
  }
}

}  // namespace ctran
