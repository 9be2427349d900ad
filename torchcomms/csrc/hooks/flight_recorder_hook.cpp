#include <cerrno>
#include <comms/torchcomms/TorchComm.hpp>
#include <comms/torchcomms/hooks/FlightRecorderHook.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
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
    "Where flight recorders write what they remember: the rank is appended."};

const ctran::ConfigBool kDynamicFileName{
    "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", false,
    "Whether flight recorders look at TORCHCOMM_FR_DUMP_TEMP_FILE whenever they write, instead of "
    "once."};

std::string expanded(const std::string& path) {
  if (path.rfind("~/", 0) != 0) return path;
  const char* home = std::getenv("HOME");
  return (home != nullptr ? home : "/tmp") + path.substr(1);
}

std::string dumpPrefix() {
  static const std::string atFirst = kDumpFile.get();
  return expanded(kDynamicFileName.get() ? kDumpFile.get() : atFirst);
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
  const std::string path = dumpPrefix() + std::to_string(rank);
  writeFile(path, recorder.pickle(includeCompleted));
  return path;
}

/// The changes of a communicator as a whole are not.
bool isRecorded(OpName name) { return name != OpName::finalize && name != OpName::reconfigure; }

/// The hooks of one communicator.
class Recording {
 public:
  Recording(std::shared_ptr<FlightRecorder> recorder, TorchComm& comm)
      : recorder_(std::move(recorder)),
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
    ctran::log(ctran::LogLevel::Warn, "communicator '%s' is broken; its flight record is in %s",
               name_.c_str(), path.c_str());
  }

 private:
  const std::shared_ptr<FlightRecorder> recorder_;
  const std::string name_;
  const std::string backend_;
  const int dumpRank_;
  FlightRecorder::GroupPtr group_;
  FlightRecorder::Records current_;  ///< of the call that is being made
};

}  // namespace

FlightRecorderHook::FlightRecorderHook(std::optional<size_t> maxEntries, bool isolated) {
  const size_t capacity =
      maxEntries ? *maxEntries : static_cast<size_t>(std::max<int64_t>(0, kBufferSize.get()));
  if (capacity == 0) return;
  recorder_ = isolated ? std::make_shared<FlightRecorder>(capacity) : sharedRecorder();
  recorder_->reserve(capacity);
}

void FlightRecorderHook::register_with_comm(TorchComm& comm) {
  if (!recorder_) return;
  const auto recording = std::make_shared<Recording>(recorder_, comm);
  handles_.push_back(
      comm.registerPreHook([recording](OpName name, uint64_t id, const PreHookArgs& args) {
        recording->before(name, id, args);
      }));
  handles_.push_back(comm.registerPostHook(
      [recording](uint64_t, const PostHookArgs& args) { recording->after(args); }));
  handles_.push_back(comm.registerAbortHook([recording] { recording->broken(); }));
}

void FlightRecorderHook::unregister() {
  for (const RemovableHandle& handle : handles_) handle.remove();
  handles_.clear();
}

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
