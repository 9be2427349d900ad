#include "ctran/base/log.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <comms/torchcomms/TorchWork.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {
namespace {

/// What threads of the engine log, until a thread of Python takes it: none of them waits for the
/// interpreter.
class LogQueue final : public ctran::LogSink {
 public:
  /// Of the process; never destroyed, as threads log until it ends.
  static LogQueue& get() {
    static LogQueue& only = *new LogQueue;
    return only;
  }

  void open() {
    {
      const std::lock_guard lock(mutex_);
      isOpen_ = true;
    }
    ctran::setLogSink(this);
  }

  void close() {
    ctran::setLogSink(nullptr);
    const std::lock_guard lock(mutex_);
    isOpen_ = false;
    changed_.notify_all();
  }

  bool take(const ctran::LogRecord& record) override {
    if (::getpid() != process_) return false;  // a child has no thread that would take it
    const std::lock_guard lock(mutex_);
    if (!isOpen_) return false;
    if (records_.size() >= kMost) {
      ++leftOut_;
      return true;
    }
    records_.push_back(record);
    changed_.notify_all();
    return true;
  }

  /// Waits for something; empty after `close`.
  std::deque<ctran::LogRecord> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !isOpen_ || !records_.empty(); });
    if (leftOut_ > 0) {
      ctran::LogRecord about = records_.back();
      about.level = ctran::LogLevel::Warn;
      about.text = std::to_string(leftOut_) + " messages were left out: there were too many";
      records_.push_back(std::move(about));
      leftOut_ = 0;
    }
    return std::exchange(records_, {});
  }

 private:
  static constexpr size_t kMost = 10'000;

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ctran::LogRecord> records_;
  uint64_t leftOut_ = 0;
  bool isOpen_ = false;
};

py::list nextLogs() {
  std::deque<ctran::LogRecord> records;
  {
    const HostWait released;
    records = LogQueue::get().next();
  }
  py::list rows;
  for (const ctran::LogRecord& record : records) {
    const std::string& text = record.text;
    rows.append(
        py::make_tuple(static_cast<double>(record.seconds) + record.micros / 1e6,
                       ctran::kLogLevels[static_cast<size_t>(record.level)],
                       ctran::kLogComponents[static_cast<size_t>(record.component)],
                       record.rank < 0 ? py::object(py::none()) : py::object(py::int_(record.rank)),
                       py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
                           text.data(), static_cast<Py_ssize_t>(text.size()), "replace"))));
  }
  return rows;
}

}  // namespace

void bindLog(py::module_& module) {
  module.def(
      "_open_log_queue", [] { LogQueue::get().open(); },
      "From now on what is logged goes to a queue.");
  module.def(
      "_close_log_queue",
      [] {
        const HostWait released;
        LogQueue::get().close();
      },
      "What is logged goes where it went before.");
  module.def("_next_logs", &nextLogs,
             "Waits for messages: time, level, component, rank, text of each. None after the queue "
             "was closed.");
}

}  // namespace torch::comms
