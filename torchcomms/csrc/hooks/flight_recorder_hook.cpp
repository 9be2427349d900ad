#include <cerrno>
#include <comms/torchcomms/TorchComm.hpp>
#include <comms/torchcomms/hooks/FlightRecorderHook.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>

#include "ctran/base/log.h"
#include "torchcomms/csrc/config.hpp"
#include "torchcomms/csrc/hooks/flight_recorder.hpp"

namespace torch::comms {

namespace {

const ctran::ConfigInt kBufferSize{
    "TORCHCOMM_FR_BUFFER_SIZE", 2048,
    "How many operations a flight recorder remembers, where its program does not say."};

const ctran::ConfigString kDumpFile{
    "TORCHCOMM_FR_DUMP_TEMP_FILE", "~/.cache/torch/comm_lib_trace_rank_",
    "Where flight recorders write what they remember: the rank is appended, unless "
    "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME is true."};

const ctran::ConfigBool kDynamicFileName{
    "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", false,
    "Whether TORCHCOMM_FR_DUMP_TEMP_FILE is a whole file name, at which flight recorders look "
    "whenever they write."};

std::string expanded(const std::string& path) {
  if (path.rfind("~/", 0) != 0) return path;
  const char* home = std::getenv("HOME");
  return (home != nullptr ? home : "/tmp") + path.substr(1);
}

std::string dumpPath(int rank) {
  static const std::string atFirst = kDumpFile.get();
  const bool isWholeName =
      kDynamicFileName.get() && std::getenv(std::string(kDumpFile.name()).c_str()) != nullptr;
  return expanded(isWholeName ? kDumpFile.get() : atFirst + std::to_string(rank));
}

/// Whole or not at all: somebody may read it while the process is dying.
void writeFile(const std::filesystem::path& path, const std::string& content) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::string unfinished = path.string() + ".tmp";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file << content;
    if (!file.flush()) {
      throw std::runtime_error("cannot write '" + unfinished + "': " + std::strerror(errno));
    }
  }
  std::filesystem::rename(unfinished, path);
}

const std::shared_ptr<FlightRecorder>& sharedRecorder() {
  // Never destroyed: the debug server's thread may ask until the process has gone.
  static const auto& recorder =
      *new const std::shared_ptr<FlightRecorder>(std::make_shared<FlightRecorder>(0));
  return recorder;
}

std::string dump(const FlightRecorder& recorder, int rank, bool includeCompleted) {
  const std::string path = dumpPath(rank);
  writeFile(path, recorder.pickle(includeCompleted));
  return path;
}

/// The changes of a communicator as a whole are not.
bool isRecorded(OpName name) { return name != OpName::finalize && name != OpName::reconfigure; }

}  // namespace

/// The communicators that one hook records. All methods may be called from any thread.
class FlightRecordings : public std::enable_shared_from_this<FlightRecordings> {
 public:
  explicit FlightRecordings(std::shared_ptr<FlightRecorder> recorder)
      : recorder_(std::move(recorder)) {}

  /// Records `comm`, unless it does so already, and what will be split from it.
  void add(TorchComm& comm);
  void removeAll();
  bool any() const;

 private:
  const std::shared_ptr<FlightRecorder> recorder_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::weak_ptr<TorchComm>> comms_;
  std::vector<RemovableHandle> handles_;
};

namespace {

/// The hooks of one communicator.
class Recording {
 public:
  Recording(std::shared_ptr<FlightRecorder> recorder, std::shared_ptr<FlightRecordings> all,
            TorchComm& comm)
      : recorder_(std::move(recorder)),
        all_(std::move(all)),
        name_(comm.getCommName()),
        backend_(comm.getBackend()),
        dumpRank_(comm.getRanks()[comm.getRank()]),
        group_(recorder_->addGroup(name_, backend_, comm.getRanks(), comm.getRank())) {}

  void before(OpName name, uint64_t id, const PreHookArgs& args) {
    current_ = {};
    if (!isRecorded(name)) return;
    current_ = recorder_->begin(group_, name, id, args);
  }

  void after(const PostHookArgs& args) {
    if (const auto* changed = std::get_if<ReconfigurePostHookArgs>(&args)) {
      std::vector<int> ranks(changed->size);
      for (int r = 0; r < changed->size; ++r) ranks[r] = r;
      recorder_->setBroken(group_, false);
      group_ = recorder_->addGroup(name_, backend_, std::move(ranks), changed->rank);
      return;
    }
    if (const auto* split = std::get_if<SplitPostHookArgs>(&args)) {
      if (const auto child = split->new_comm.lock()) all_->add(*child);
    }
    // Nobody needs it any more.
    if (std::holds_alternative<FinalizePostHookArgs>(args)) recorder_->setBroken(group_, false);
    c10::intrusive_ptr<TorchWork> work;
    if (const auto* one = std::get_if<CollectivePostHookArgs>(&args)) work = one->work.lock();
    if (const auto* batch = std::get_if<BatchOpIssuePostHookArgs>(&args)) work = batch->work.lock();
    if (!work) return recorder_->completed(current_);
    work->registerWorkStartHook(
        [recorder = recorder_, records = current_] { recorder->started(records); });
    // Holds the work until it has ended, to be able to ask how.
    TorchWork& asked = *work;
    asked.registerWorkEndHook([recorder = recorder_, records = current_, work = std::move(work)] {
      if (work->status() == WorkStatus::COMPLETED) recorder->completed(records);
    });
  }

  void broken() const {
    recorder_->setBroken(group_, true);
    const std::string path = dump(*recorder_, dumpRank_, /*includeCompleted=*/true);
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
               "communicator '%s' is broken; its flight record is in %s", name_.c_str(),
               path.c_str());
  }

 private:
  const std::shared_ptr<FlightRecorder> recorder_;
  const std::shared_ptr<FlightRecordings> all_;
  const std::string name_;
  const std::string backend_;
  const int dumpRank_;
  FlightRecorder::GroupPtr group_;
  FlightRecorder::Records current_;  ///< of the call that is being made
};

}  // namespace

void FlightRecordings::add(TorchComm& comm) {
  const std::weak_ptr<TorchComm> added = comm.weak_from_this();
  const std::lock_guard lock(mutex_);
  // Compared without owning one, which would let it go with the lock if nobody else has it.
  for (const auto& known : comms_) {
    if (!known.owner_before(added) && !added.owner_before(known)) return;
  }
  const auto recording = std::make_shared<Recording>(recorder_, shared_from_this(), comm);
  handles_.push_back(
      comm.registerPreHook([recording](OpName name, uint64_t id, const PreHookArgs& args) {
        recording->before(name, id, args);
      }));
  handles_.push_back(comm.registerPostHook(
      [recording](uint64_t, const PostHookArgs& args) { recording->after(args); }));
  handles_.push_back(comm.registerAbortHook([recording] { recording->broken(); }));
  comms_.push_back(added);
}

void FlightRecordings::removeAll() {
  const std::lock_guard lock(mutex_);
  for (const RemovableHandle& handle : handles_) handle.remove();
  handles_.clear();
  comms_.clear();
}

bool FlightRecordings::any() const {
  const std::lock_guard lock(mutex_);
  return !handles_.empty();
}

FlightRecorderHook::FlightRecorderHook(std::optional<size_t> maxEntries, bool isolated) {
  const size_t capacity =
      maxEntries ? *maxEntries : static_cast<size_t>(std::max<int64_t>(0, kBufferSize.get()));
  if (capacity == 0) return;
  recorder_ = isolated ? std::make_shared<FlightRecorder>(capacity) : sharedRecorder();
  recorder_->reserve(capacity);
  recordings_ = std::make_shared<FlightRecordings>(recorder_);
}

void FlightRecorderHook::register_with_comm(TorchComm& comm) {
  if (recordings_) recordings_->add(comm);
}

void FlightRecorderHook::unregister() {
  if (recordings_) recordings_->removeAll();
}

bool FlightRecorderHook::is_enabled() const { return recordings_ && recordings_->any(); }

std::string FlightRecorderHook::dump_json(bool includeCompleted) const {
  static const FlightRecorder kNothing(0);
  return (recorder_ ? *recorder_ : kNothing).json(includeCompleted);
}

std::string FlightRecorderHook::dump_file(int rank, bool includeCompleted) const {
  static const FlightRecorder kNothing(0);
  return dump(recorder_ ? *recorder_ : kNothing, rank, includeCompleted);
}

std::vector<std::string> FlightRecorderHook::broken() const {
  return recorder_ ? recorder_->broken() : std::vector<std::string>();
}

int FlightRecorderHook::rank() const { return recorder_ ? recorder_->rank() : 0; }

void FlightRecorderHook::reset() {
  if (recorder_) recorder_->clear();
}

size_t FlightRecorderHook::size() const { return recorder_ ? recorder_->size() : 0; }

}  // namespace torch::comms
