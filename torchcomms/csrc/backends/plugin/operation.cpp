#include "torchcomms/csrc/backends/plugin/operation.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace torch::comms {

namespace {

constexpr int64_t kMilli = 1'000'000;
/// How long a signal may go unnoticed.
constexpr int64_t kSlice = 100 * kMilli;
/// How long a cancelled operation may take to end.
constexpr int64_t kCancelled = 1000 * kMilli;

int setInStore(void* context, const char* key, const void* value, uint64_t bytes) {
  try {
    const auto* begin = static_cast<const uint8_t*>(value);
    static_cast<c10d::Store*>(context)->set(key, std::vector<uint8_t>(begin, begin + bytes));
    return TORCHCOMMS_OK;
  } catch (...) {  // no exception may cross
    return TORCHCOMMS_FAILED;
  }
}

int64_t getFromStore(void* context, const char* key, void* value, uint64_t capacity,
                     int64_t deadline) {
  try {
    auto* store = static_cast<c10d::Store*>(context);
    std::chrono::milliseconds pause{1};
    while (!store->check({key})) {
      if (monotonicNanos() >= deadline) return -1;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(20));
    }
    const std::vector<uint8_t> found = store->get(key);
    std::memcpy(value, found.data(), std::min<uint64_t>(capacity, found.size()));
    return static_cast<int64_t>(found.size());
  } catch (...) {
    return -1;
  }
}

}  // namespace

int64_t monotonicNanos() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

PluginStore::PluginStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {
  table_.size = sizeof table_;
  table_.context = store_.get();
  table_.set = &setInStore;
  table_.get = &getFromStore;
}

PluginOperation::PluginOperation(const torchcomms_plugin& plugin, torchcomms_operation* operation,
                                 OpName name, std::string comm, int64_t deadlineNanos,
                                 std::vector<at::Tensor> held)
    : plugin_(plugin),
      operation_(operation),
      name_(name),
      comm_(std::move(comm)),
      deadline_(deadlineNanos),
      held_(std::move(held)) {}

PluginOperation::~PluginOperation() {
  const HostWait released;  // it may wait for a thread of its own
  plugin_.release(operation_);
}

WorkStatus PluginOperation::take(int result) {
  std::vector<at::Tensor> held;  // let go of after the lock: that may ask for the interpreter's
  const std::lock_guard lock(mutex_);
  if (result == TORCHCOMMS_PENDING || status_ != WorkStatus::INPROGRESS) return status_;
  held.swap(held_);
  if (result == TORCHCOMMS_OK) return status_ = WorkStatus::COMPLETED;
  const char* why = plugin_.error ? plugin_.error(operation_) : nullptr;
  const bool late = monotonicNanos() >= deadline_;
  status_ = late ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
  error_ = std::make_exception_ptr(
      ctran::Error(late ? ctran::ErrorKind::Timeout : ctran::ErrorKind::System,
                   std::string(toString(name_)) + " on communicator '" + comm_ + "'" +
                       (late ? " timed out: " : " failed: ") + (why ? why : "no reason given"),
                   {}, std::string(toString(name_))));
  return status_;
}

WorkStatus PluginOperation::status() { return take(plugin_.test(operation_)); }

std::exception_ptr PluginOperation::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool PluginOperation::wait(std::optional<std::chrono::milliseconds> limit, bool interruptible) {
  const int64_t now = monotonicNanos();
  const int64_t until = limit ? now + limit->count() * kMilli : INT64_MAX;
  bool cancelled = false;
  int64_t end = deadline_;
  while (true) {
    const int64_t slice = std::min({monotonicNanos() + kSlice, until, end});
    if (take(plugin_.wait(operation_, slice)) != WorkStatus::INPROGRESS) return true;
    const int64_t later = monotonicNanos();
    if (later >= end) {
      if (cancelled || plugin_.cancel == nullptr) {
        const std::lock_guard lock(mutex_);
        error_ = std::make_exception_ptr(ctran::Error(
            ctran::ErrorKind::Timeout,
            std::string(toString(name_)) + " on communicator '" + comm_ + "' timed out", {},
            std::string(toString(name_))));
        status_ = WorkStatus::TIMEDOUT;  // the tensors stay held: it may still use them
        return true;
      }
      plugin_.cancel(operation_);
      cancelled = true;
      end = later + kCancelled;
    }
    if (later >= until) return false;
    if (interruptible) HostWait::checkInterrupts();
  }
}

bool PluginWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  bool over = status() != WorkStatus::INPROGRESS;
  if (!over) {
    const HostWait released;
    over = operation_->wait(limit, /*interruptible=*/true);
  }
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return over;
}

void PluginWork::setCallback(std::function<void()> callback) {
  if (isCompleted()) return callback();
  ctran::startThread("comms-wait", [operation = operation_, callback = std::move(callback)] {
    operation->wait(std::nullopt, /*interruptible=*/false);
    callback();
  });
}

}  // namespace torch::comms
