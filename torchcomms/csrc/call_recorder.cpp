#include "torchcomms/csrc/call_recorder.hpp"

#include <c10/util/SmallVector.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "ctran/base/clock.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/sha256.h"
#include "ctran/collective/signature.h"
#include "ctran/engine/report.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"
#include "ctran/trace/overlapping_trace.h"
#include "ctran/trace/preparation.h"
#include "ctran/trace/recording.h"
#include "ctran/trace/replay_trace.h"
#include "ctran/trace/served.h"
#include "torchcomms/csrc/current_stream.hpp"
#include "torchcomms/csrc/data_type.hpp"
#include "torchcomms/csrc/on_stream.hpp"

namespace torch::comms {

namespace {

using ctran::Collective;
using ctran::CollectiveKind;
using ctran::isOfWindow;
using Entry = ctran::OverlappingTrace::Entry;

/// The same text in all processes of a job, and another one in those of another job, as far as the
/// launcher's variables tell them apart.
std::string jobOf() {
  constexpr const char* kNames[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                    "SLURM_JOB_ID", "SLURM_STEP_ID"};
  std::string job;
  bool isTold = false;
  for (const char* name : kNames) {
    const char* value = std::getenv(name);
    isTold = isTold || value != nullptr;
    job += std::string(value != nullptr ? value : "") + '\n';
  }
  return isTold ? job : "children of " + std::to_string(::getppid()) + '\n';
}

/// What is the same of a store for all ranks that meet there.
std::string placeOf(c10::intrusive_ptr<c10d::Store> store) {
  struct Prefix : c10d::PrefixStore {
    static const std::string& of(const c10d::PrefixStore& prefixed) {
      return prefixed.*(&Prefix::prefix_);
    }
  };
  std::string place;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    place += Prefix::of(*prefixed) + '/';
    store = prefixed->getUnderlyingStore();
  }
  // Not the host: ranks may have different names for it.
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get())) {
    place += std::to_string(tcp->getPort());
  } else if (const auto* file = dynamic_cast<const c10d::FileStore*>(store.get())) {
    place += file->getPath();
  }
  return place + '\n';
}

/// How often this process has asked for that text.
int countOf(const std::string& text) {
  static std::mutex& mutex = *new std::mutex;
  static auto& counts = *new std::map<std::string, int>;
  const std::lock_guard lock(mutex);
  return counts[text]++;
}

/// Names a communicator alike on all its ranks, without asking them: ranks make the communicators
/// of one name in the same order.
uint64_t groupOf(const TorchCommBackend& backend, const std::vector<int>& ranks,
                 const std::string& uuid) {
  std::string text = jobOf() + placeOf(backend.getOptions().store) +
                     std::string(backend.getBackendName()) + '\n' +
                     std::string(backend.getCommName()) + '\n';
  for (const int rank : ranks) text += std::to_string(rank) + ' ';
  text += '#' + (uuid.empty() ? std::to_string(countOf(text)) : uuid);
  const ctran::Digest digest = ctran::Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t group;
  std::memcpy(&group, digest.data(), sizeof group);
  return group;
}

/// The engine's name for a call; none of what is not recorded.
std::optional<CollectiveKind> kindOf(OpName op) {
  switch (op) {
    case OpName::send:
      return CollectiveKind::Send;
    case OpName::recv:
      return CollectiveKind::Recv;
    case OpName::barrier:
      return CollectiveKind::Barrier;
    case OpName::broadcast:
      return CollectiveKind::Broadcast;
    case OpName::all_reduce:
      return CollectiveKind::AllReduce;
    case OpName::reduce:
      return CollectiveKind::Reduce;
    case OpName::all_gather:
    case OpName::all_gather_single:
      return CollectiveKind::AllGather;
    case OpName::all_gather_v:
      return CollectiveKind::AllGatherV;
    case OpName::reduce_scatter:
    case OpName::reduce_scatter_single:
    case OpName::reduce_scatter_quantized:
      return CollectiveKind::ReduceScatter;
    case OpName::reduce_scatter_v:
      return CollectiveKind::ReduceScatterV;
    case OpName::all_to_all_single:
      return CollectiveKind::AllToAll;
    case OpName::all_to_all:
    case OpName::all_to_all_v_single:
      return CollectiveKind::AllToAllV;
    case OpName::scatter:
      return CollectiveKind::Scatter;
    case OpName::gather:
    case OpName::gather_single:
      return CollectiveKind::Gather;
    case OpName::alltoallv_dynamic_combine:
    case OpName::all_to_all_v_dedup_combine:
      return CollectiveKind::AllToAllVCombine;
    case OpName::all_to_all_v_dynamic:
    case OpName::device_alltoallv_single:
    case OpName::alltoallv_dynamic_dispatch:
    case OpName::all_to_all_v_dedup:
      return CollectiveKind::AllToAllVDynamic;
    case OpName::put:
      return CollectiveKind::Put;
    case OpName::get:
      return CollectiveKind::Get;
    case OpName::flush:
      return CollectiveKind::Flush;
    case OpName::signal:
      return CollectiveKind::Signal;
    case OpName::wait_signal:
      return CollectiveKind::WaitSignal;
    default:
      return std::nullopt;
  }
}

/// Of one rank, or two; else all ranks make the call.
bool isMessage(CollectiveKind kind) {
  return kind == CollectiveKind::Send || kind == CollectiveKind::Recv || isOfWindow(kind);
}

const at::Tensor* firstOf(const at::Tensor& tensor) { return tensor.defined() ? &tensor : nullptr; }
const at::Tensor* firstOf(const std::vector<at::Tensor>& tensors) {
  return tensors.empty() ? nullptr : &tensors.front();
}
uint64_t bytesOf(const at::Tensor& tensor) { return tensor.defined() ? tensor.nbytes() : 0; }
uint64_t bytesOf(const std::vector<at::Tensor>& tensors) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += bytesOf(tensor);
  return bytes;
}

/// What is recorded of a call.
struct Facts {
  Collective call;
  const at::Tensor* block = nullptr;  ///< of one size on all ranks, where there is such a tensor
  uint64_t bytes = 0, received = 0;   ///< `received`: where the blocks of a rank differ
  uint32_t tag = 0;                   ///< of a window's operation
};

template <typename Args>
Facts factsOf(CollectiveKind kind, const Args& args) {
  Facts facts;
  facts.call.kind = kind;
  if constexpr (requires { args.op; }) {
    const bool isScaled = args.op.type() == RedOpType::PREMUL_SUM;
    facts.call.op.kind = isScaled ? ctran::ReduceKind::PremulSum : engineOp(args.op).kind;
  }
  if constexpr (requires { args.root; }) facts.call.root = args.root;
  if constexpr (requires { args.peer; }) {
    facts.call.root = args.peer < 0 ? ctran::kAnyRank : args.peer;
  }
  if constexpr (requires { args.input; }) {
    const bool isOutput = kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::Scatter;
    facts.block = isOutput ? firstOf(args.output) : firstOf(args.input);
    facts.bytes = bytesOf(args.input);
    if (kind == CollectiveKind::AllToAllV) facts.received = bytesOf(args.output);
  } else if constexpr (requires { args.tensor; }) {
    facts.block = firstOf(args.tensor);
    facts.bytes = bytesOf(args.tensor);
  }
  if (isOfWindow(kind)) {
    facts.block = nullptr;
    facts.call.count = facts.bytes;
  }
  return facts;
}

Facts factsOf(const P2POp& message) {
  Facts facts;
  const bool sends = message.type == P2POp::Type::SEND;
  facts.call.kind = sends ? CollectiveKind::Send : CollectiveKind::Recv;
  facts.call.root = message.peer;
  facts.block = firstOf(message.tensor);
  facts.bytes = bytesOf(message.tensor);
  return facts;
}

/// The engine records what it does on CPUs. The operations of backend fake do nothing.
bool needsRecorder(const TorchCommBackend& backend) {
  const std::string_view name = backend.getBackendName();
  const bool isStandIn = backend.getOptions().hints.count("ctran::stand_in") != 0;
  return name != "fake" && !(name == "ctran" && backend.getDevice().is_cpu() && !isStandIn);
}

}  // namespace

/// Of the messages of a batch, or the one collective.
struct CallRecorder::Entries : c10::SmallVector<Entry, 1> {
  int64_t loggedSince = 0;  ///< 0: it is not logged
};

constexpr const char* kCaptured = "captured: replays are not recorded";

struct CallRecorder::State {
  State(ctran::UniqueFd file, const ctran::Recording::Who& who, const TorchCommBackend& backend)
      : memory(std::move(file)),
        recording(ctran::SharedMapping::map(memory, ctran::Recording::bytesFor(1)), 1, 0, who),
        trace(recording),
        choice(recording.choice(backend.getBackendName(), "the communicator's backend")),
        device(backend.getDevice()),
        isOnCpu(device.is_cpu()),
        name(who.name),
        size(who.size) {}

  const ctran::UniqueFd memory;  ///< by which others find it
  ctran::Recording recording;
  ctran::OverlappingTrace trace;
  const uint32_t choice;
  const at::Device device;
  const bool isOnCpu;
  const std::string name;
  const int size;

  struct Known {
    ctran::Served served;
    uint32_t choice;
  };
  std::mutex mutex;          ///< of `known`
  std::vector<Known> known;  ///< what has served calls

  /// What has served a call, as its records name it.
  uint32_t choiceOf(const ctran::Served& served) {
    const std::lock_guard lock(mutex);
    for (const Known& one : known) {
      if (one.served.algorithm == served.algorithm && one.served.why == served.why) {
        return one.choice;
      }
    }
    const uint32_t made = recording.choice(served.algorithm, served.why);
    if (made == 0) return choice;  // no room for more
    known.push_back({served, made});
    return made;
  }
  /// `captured`: what to say of a call that has been captured; else null.
  void served(const Entries& entries, const char* captured) {
    const ctran::Served* const said = ctran::Served::take();
    if (said == nullptr && captured == nullptr) return;
    const std::string algorithm = said != nullptr ? said->algorithm : recording.algorithm(choice);
    const uint32_t chosen = choiceOf({algorithm, captured != nullptr ? captured : said->why});
    for (const Entry& entry : entries) trace.chose(entry, chosen);
  }
  std::vector<ctran::ReplayTrace::Call> replayed(const Entries& entries) {
    std::vector<ctran::ReplayTrace::Call> calls;
    for (const Entry& entry : entries) {
      const auto record = trace.summary(entry);
      if (!record) continue;
      calls.push_back({entry.isMessage, entry.position, record->what, record->count, record->bytes,
                       record->choice});
    }
    return calls;
  }

  void log(const Entry& entry, int64_t nanos, const char* outcome) {
    const auto record = trace.summary(entry);
    if (!record) return;
    std::string text = "'" + name + "' " + ctran::recordedCall(record->what, record->count).text;
    if (!entry.isMessage) text += " #" + std::to_string(entry.position);
    text += ": " + ctran::printedBytes(static_cast<double>(record->bytes));
    const std::string algorithm = recording.algorithm(record->choice);
    if (!algorithm.empty()) text += ", " + algorithm;
    char time[64];
    std::snprintf(time, sizeof time, ", %.1f us", static_cast<double>(nanos) / 1000);
    ctran::logText(ctran::LogComponent::Collective, ctran::LogLevel::Debug, text + time + outcome);
  }
  void log(const Entries& entries, const char* outcome) {
    if (entries.loggedSince == 0) return;
    const int64_t nanos = ctran::nowNanos() - entries.loggedSince;
    for (const Entry& entry : entries) {
      if (entry.isRecorded) log(entry, nanos, outcome);
    }
  }

  void begin(Facts facts, Entries& entries) {
    Collective& call = facts.call;
    if (facts.block != nullptr) {
      call.type = movedType(*facts.block);
      call.count = static_cast<size_t>(facts.block->numel());
      if (call.kind == CollectiveKind::AllToAll) call.count /= static_cast<size_t>(size);
    }
    const uint64_t tag = isOfWindow(call.kind) ? facts.tag : facts.received;
    entries.push_back(
        trace.begin(isMessage(call.kind), ctran::makeRecord(call, 0, 0), facts.bytes, tag, choice));
  }

  Entries begin(OpName op, const PreHookArgs& args, const RecordedSignal& signal) {
    Entries entries;
    if (ctran::logs(ctran::LogComponent::Collective, ctran::LogLevel::Debug)) [[unlikely]] {
      entries.loggedSince = ctran::nowNanos();
    }
    if (const auto* batch = std::get_if<BatchOpIssuePreHookArgs>(&args)) {
      for (const P2POp& message : batch->ops) begin(factsOf(message), entries);
    } else if (const auto kind = kindOf(op)) {
      Facts facts = std::visit([&](const auto& typed) { return factsOf(*kind, typed); }, args);
      if (isOfWindow(*kind)) {
        facts.call.count += signal.count;
        facts.tag = signal.tag;
      }
      begin(std::move(facts), entries);
    }
    return entries;
  }

  /// The call is about to end: what its thread has prepared since the call before it was for it.
  void prepared(const Entries& entries) {
    const uint64_t ticks = ctran::Preparation::take();
    if (ticks > 0 && !entries.empty()) trace.prepared(entries.front(), ticks);
  }
  void started(const Entries& entries) {
    for (const Entry& entry : entries) trace.started(entry);
  }
  void ended(const Entries& entries, std::optional<ctran::DeviceSpan> span = std::nullopt) {
    for (const Entry& entry : entries) {
      span ? trace.ended(entry, span->startedAt, span->endedAt) : trace.ended(entry);
    }
    log(entries, "");
  }
  void failed(const Entries& entries, const ctran::Error& error) {
    for (const Entry& entry : entries) trace.failed(entry, static_cast<int>(error.kind()));
    recording.failed(error);
    log(entries, ", failed");
  }
  /// The call has been refused: nothing has been sent, and the communicator is as before.
  void refused(const Entries& entries) {
    if (entries.size() == 1) return trace.withdraw(entries.front());
    ended(entries);  // messages, whose numbers need not be those of other ranks
  }
};

namespace {

/// As the engine does for its own on CPUs: on rank 0 at info, on others at debug.
void logCreation(const TorchCommBackend& backend, const ctran::Recording::Who& who) {
  const auto level = who.rank == 0 ? ctran::LogLevel::Info : ctran::LogLevel::Debug;
  if (!ctran::logs(ctran::LogComponent::Torch, level)) return;
  char timeout[32];
  std::snprintf(timeout, sizeof timeout, "%g s", static_cast<double>(who.timeoutNanos) / 1e9);
  ctran::logText(ctran::LogComponent::Torch, level,
                 "communicator '" + who.name + "': rank " + std::to_string(who.rank) + " of " +
                     std::to_string(who.size) + " on " + who.host + "; backend " +
                     std::string(backend.getBackendName()) + ", device " +
                     backend.getDevice().str() + "; timeout " + timeout);
}

}  // namespace

std::shared_ptr<CallRecorder> CallRecorder::of(const TorchCommBackend& backend,
                                               const std::vector<int>& ranks,
                                               const std::string& uuid) {
  if (!needsRecorder(backend)) return nullptr;
  try {
    const std::string name(backend.getCommName());
    const auto timeout = std::chrono::nanoseconds(backend.getOptions().timeout);
    const ctran::Recording::Who who{backend.getRank(),
                                    backend.getSize(),
                                    name,
                                    ctran::processName(),
                                    groupOf(backend, ranks, uuid),
                                    timeout.count(),
                                    /*takesSettings=*/false};
    auto memory = ctran::createSharedMemory("ctran-calls", ctran::Recording::bytesFor(1));
    auto state = std::make_unique<State>(std::move(memory), who, backend);
    // Collectives are counted from 1: number 0 is the communicator's creation, as in the engine.
    Entries creation;
    state->begin(Facts{}, creation);
    for (const Entry& entry : creation) state->trace.ended(entry);
    logCreation(backend, who);
    return std::shared_ptr<CallRecorder>(new CallRecorder(std::move(state)));
  } catch (const std::exception& error) {
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
               "calls of communicator '%s' are not recorded: %s",
               std::string(backend.getCommName()).c_str(), error.what());
    return nullptr;
  }
}

CallRecorder::CallRecorder(std::unique_ptr<State> state) : state_(std::move(state)) {}
CallRecorder::~CallRecorder() = default;

void CallRecorder::left() { state_->recording.left(); }

CallRecorder::WorkPtr CallRecorder::around(OpName op, const PreHookArgs& args,
                                           const RecordedSignal& signal,
                                           c10::function_ref<WorkPtr()> issue) {
  const Entries entries = state_->begin(op, args, signal);
  ctran::Served::take();  // of what nobody has recorded
  ctran::ReplayTrace::take();
  WorkPtr work;
  try {
    work = issue();
  } catch (const ctran::Error& error) {
    const ctran::ErrorKind kind = error.kind();
    if (kind == ctran::ErrorKind::InvalidArgument || kind == ctran::ErrorKind::Unsupported) {
      state_->refused(entries);
    } else {
      state_->failed(entries, error);
    }
    throw;
  } catch (const std::exception& error) {
    state_->failed(entries, ctran::Error(ctran::ErrorKind::System, error.what()));
    throw;
  }
  state_->prepared(entries);
  if (entries.empty() || !entries.front().isRecorded) return work;
  const bool isOver = work == TorchWorkCompleted::shared();
  const auto replays = ctran::ReplayTrace::take();
  const bool isCaptured = isOver && !state_->isOnCpu && stream::isCapturing(state_->device);
  state_->served(entries, isCaptured && !replays ? kCaptured : nullptr);
  if (replays) {
    replays->write({shared_from_this(), &state_->recording}, state_->replayed(entries));
  }
  if (isOver) {
    state_->ended(entries);
    return work;
  }
  try {
    follow(work, entries);
  } catch (const std::exception&) {  // no thread that would tell: the operation goes on
    state_->ended(entries);
  }
  return work;
}

void CallRecorder::follow(const WorkPtr& work, const Entries& entries) {
  if (state_->isOnCpu) {
    work->registerWorkStartHook(
        [self = shared_from_this(), entries] { self->state_->started(entries); });
  } else {
    state_->started(entries);  // it has been issued; what the device says comes in the end
  }
  const auto* const onStream = dynamic_cast<const OnStream*>(work.get());
  // The record must not keep the work: that the program lets go of it says that nobody will ask
  // for its error.
  work->registerWorkEndHook([self = shared_from_this(), entries,
                             weak = c10::weak_intrusive_ptr<TorchWork>(work),
                             timed = onStream == nullptr ? std::weak_ptr<ctran::StreamOperation>()
                                                         : std::weak_ptr(onStream->operation())] {
    const WorkPtr ended = weak.lock();
    const WorkStatus status = ended ? ended->status() : WorkStatus::COMPLETED;
    if (status != WorkStatus::TIMEDOUT && status != WorkStatus::ERROR) {
      const auto operation = timed.lock();
      return self->state_->ended(entries, operation ? operation->deviceSpan() : std::nullopt);
    }
    const bool isLate = status == WorkStatus::TIMEDOUT;
    self->state_->failed(entries,
                         ctran::Error(isLate ? ctran::ErrorKind::Timeout : ctran::ErrorKind::System,
                                      "an operation has failed; the rank's error says why"));
  });
}

}  // namespace torch::comms
