#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <comms/torchcomms/TorchComm.hpp>
#include <comms/torchcomms/hooks/ClogHook.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "ctran/base/log.h"
#include "torchcomms/csrc/hooks/operation_view.hpp"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;

template <typename Number>
std::string listOf(const std::vector<Number>& numbers) {
  std::string text;
  for (const Number n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

std::string addressesOf(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    char address[20];
    std::snprintf(address, sizeof address, "0x%zx",
                  reinterpret_cast<size_t>(tensor.const_data_ptr()));
    text += (text.empty() ? "" : ",") + std::string(address);
  }
  return text;
}

int64_t countOf(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

std::string typeName(c10::ScalarType type) {
  switch (type) {
    case at::kBool:
      return "bool";
    case at::kChar:
      return "i8";
    case at::kShort:
      return "i16";
    case at::kInt:
      return "i32";
    case at::kLong:
      return "i64";
    case at::kByte:
      return "u8";
    case at::kUInt16:
      return "u16";
    case at::kUInt32:
      return "u32";
    case at::kUInt64:
      return "u64";
    case at::kFloat8_e4m3fn:
      return "f8e4m3";
    case at::kFloat8_e5m2:
      return "f8e5m2";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kComplexFloat:
      return "c64";
    case at::kComplexDouble:
      return "c128";
    default:
      return c10::toString(type);
  }
}

std::string lowered(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

}  // namespace

/// The file of a log, and what stands in it. All methods may be called from any thread.
class ClogWriter {
 public:
  ClogWriter(std::string output, bool lifecycle, bool buffers)
      : lifecycle(lifecycle), buffers(buffers), output_(std::move(output)) {
    const bool dependsOnRank =
        output_.find(kRank) != std::string::npos || std::filesystem::is_directory(output_);
    if (!dependsOnRank) open(/*rank=*/0);
  }
  ~ClogWriter() {
    if (file_ != nullptr) std::fclose(file_);
  }
  ClogWriter(const ClogWriter&) = delete;
  ClogWriter& operator=(const ClogWriter&) = delete;

  const bool lifecycle;
  const bool buffers;

  /// Makes the file, unless it has been made.
  void open(int rank) {
    const std::lock_guard lock(mutex_);
    if (file_ != nullptr) return;
    const std::string path = pathFor(rank);
    file_ = std::fopen(path.c_str(), "we");
    if (file_ == nullptr) {
      throw std::runtime_error("clog cannot write '" + path + "': " + std::strerror(errno));
    }
    const auto epoch =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
    std::fprintf(file_, "V|1|base_timestamp=%.6f\n", epoch.count());
    flush();
  }

  /// The number of a signature; the first time it is written too.
  uint64_t correlate(const std::string& signature) {
    const std::lock_guard lock(mutex_);
    const auto [found, isNew] = numbers_.try_emplace(signature, numbers_.size() + 1);
    if (isNew) {
      std::fprintf(file_, "C%zu|sig|%s\n", static_cast<size_t>(found->second), signature.c_str());
    }
    return found->second;
  }

  /// Something happened to operation `work` of the signature `number`.
  void event(uint64_t number, uint64_t work, char kind) {
    line("C" + std::to_string(number) + "|" + kind + "|work_id=" + std::to_string(work));
  }

  /// A line of any kind, with its time.
  void line(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const std::chrono::duration<double> since = Clock::now() - base_;
    std::fprintf(file_, "%s|+%.6f\n", text.c_str(), since.count());
    flush();  // what hangs or dies leaves its log
  }

 private:
  static constexpr std::string_view kRank = "{rank}";

  void flush() {
    if (std::fflush(file_) == 0 || std::exchange(hasFailed_, true)) return;
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
               "clog cannot write, so lines are missing from its file: %s", std::strerror(errno));
  }

  std::string pathFor(int rank) const {
    if (const size_t at = output_.find(kRank); at != std::string::npos) {
      std::string path = output_;
      return path.replace(at, kRank.size(), std::to_string(rank));
    }
    if (std::filesystem::is_directory(output_)) {
      return (std::filesystem::path(output_) / ("clog_rank" + std::to_string(rank) + ".log"))
          .string();
    }
    return output_;
  }

  const std::string output_;
  const Clock::time_point base_ = Clock::now();
  std::mutex mutex_;  // guards what follows
  std::FILE* file_ = nullptr;
  bool hasFailed_ = false;  // which is said once
  std::map<std::string, uint64_t> numbers_;
};

namespace {

/// "all_reduce|in_count=12|out_count=12|dtype=f32|red_op=sum|async_op=t|comm=world".
std::string signatureOf(OpName name, const PreHookArgs& args, const std::string& comm,
                        bool buffers) {
  const OperationView view = viewOf(args);
  std::string text(toString(name));
  const auto field = [&](const char* key, const std::string& value) {
    text += "|" + std::string(key) + "=" + value;
  };
  if (!view.inputs.empty()) field("in_count", std::to_string(countOf(view.inputs)));
  if (!view.outputs.empty()) field("out_count", std::to_string(countOf(view.outputs)));
  const auto& data = view.inputs.empty() ? view.outputs : view.inputs;
  if (!data.empty()) field("dtype", typeName(data[0].scalar_type()));
  if (view.op) field("red_op", lowered(toString(view.op->type())));
  if (view.peer) field("peer", std::to_string(*view.peer));
  if (view.root) field("root", std::to_string(*view.root));
  std::visit(
      [&](const auto& typed) {
        using Args = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<Args, BatchOpIssuePreHookArgs>) {
          std::string ops;
          for (const P2POp& op : typed.ops) {
            ops += (ops.empty() ? "" : ",") +
                   std::string(op.type == P2POp::Type::SEND ? "send:" : "recv:") +
                   std::to_string(op.peer);
          }
          field("ops", ops);
        } else if constexpr (std::is_same_v<Args, AllToAllVSinglePreHookArgs>) {
          field("input_split_sizes", listOf(typed.input_split_sizes));
          field("output_split_sizes", listOf(typed.output_split_sizes));
        } else if constexpr (std::is_same_v<Args, SplitPreHookArgs>) {
          field("name", typed.name);
          field("ranks", listOf(typed.ranks));
        } else if constexpr (std::is_same_v<Args, ReconfigurePreHookArgs>) {
          field("uuid", typed.uuid);
          field("members", std::to_string(typed.init_handles.size()));
        }
        if constexpr (std::is_base_of_v<OpPreHookArgs, Args>) {
          field("async_op", view.async_op ? "t" : "f");
        }
      },
      args);
  if (buffers && !view.inputs.empty()) field("in_ptr", addressesOf(view.inputs));
  if (buffers && !view.outputs.empty()) field("out_ptr", addressesOf(view.outputs));
  field("comm", comm);
  return text;
}

/// The hooks of one communicator.
class Logging {
 public:
  Logging(std::shared_ptr<ClogWriter> writer, TorchComm& comm)
      : writer_(std::move(writer)), name_(comm.getCommName()) {}

  void before(OpName name, uint64_t id, const PreHookArgs& args) {
    current_ = writer_->correlate(signatureOf(name, args, name_, writer_->buffers));
    work_ = id;
    if (const auto* split = std::get_if<SplitPreHookArgs>(&args)) splitRanks_ = split->ranks;
    writer_->event(current_, work_, 'Q');
    // A synchronous operation starts with its call. If it never ends, this is its last line.
    synchronous_ = !viewOf(args).async_op;
    if (writer_->lifecycle && synchronous_) writer_->event(current_, work_, 'S');
  }

  void after(const PostHookArgs& args) {
    if (const auto* split = std::get_if<SplitPostHookArgs>(&args)) {
      const auto child = split->new_comm.lock();
      writer_->line("split|parent=" + name_ +
                    "|child=" + (child ? std::string(child->getCommName()) : "none") +
                    "|ranks=" + listOf(splitRanks_));
    }
    if (!writer_->lifecycle) return;
    c10::intrusive_ptr<TorchWork> work;
    if (const auto* one = std::get_if<CollectivePostHookArgs>(&args)) work = one->work.lock();
    if (const auto* batch = std::get_if<BatchOpIssuePostHookArgs>(&args)) work = batch->work.lock();
    if (!work) return writer_->event(current_, work_, 'E');
    const auto log = [writer = writer_, number = current_, id = work_](char kind) {
      return [writer, number, id, kind] { writer->event(number, id, kind); };
    };
    if (!synchronous_) work->registerWorkStartHook(log('S'));
    work->registerWorkWaitPreHook(log('W'));
    TorchWork& asked = *work;
    asked.registerWorkEndHook(
        [writer = writer_, number = current_, id = work_, work = std::move(work)] {
          const WorkStatus status = work->status();
          writer->event(number, id, 'E');
          if (status != WorkStatus::COMPLETED) {
            writer->line("WARN|C" + std::to_string(number) + "|" + std::string(toString(status)));
          }
        });
  }

  void broken() const { writer_->line("WARN|broken|comm=" + name_); }

 private:
  const std::shared_ptr<ClogWriter> writer_;
  const std::string name_;
  // Of the call that is being made.
  uint64_t current_ = 0;
  uint64_t work_ = 0;
  std::vector<int> splitRanks_;
  bool synchronous_ = false;
};

}  // namespace

ClogHook::ClogHook(std::string output, const std::vector<std::string>& events,
                   const std::vector<std::string>& verbose) {
  for (const std::string& event : events) {
    if (event != "LIFECYCLE" && event != "ALL") {
      throw std::invalid_argument("clog knows the events LIFECYCLE and ALL, not '" + event + "'");
    }
  }
  for (const std::string& more : verbose) {
    if (more != "buffers") {
      throw std::invalid_argument("clog can be verbose about buffers, not about '" + more + "'");
    }
  }
  writer_ = std::make_shared<ClogWriter>(std::move(output), !events.empty(), !verbose.empty());
}

void ClogHook::register_with_comm(TorchComm& comm) {
  writer_->open(comm.getRanks()[comm.getRank()]);
  writer_->line("new_comm|comm=" + std::string(comm.getCommName()) + "|rank=" +
                std::to_string(comm.getRank()) + "|world_size=" + std::to_string(comm.getSize()));
  const auto logging = std::make_shared<Logging>(writer_, comm);
  handles_.push_back(
      comm.registerPreHook([logging](OpName name, uint64_t id, const PreHookArgs& args) {
        logging->before(name, id, args);
      }));
  handles_.push_back(comm.registerPostHook(
      [logging](uint64_t, const PostHookArgs& args) { logging->after(args); }));
  handles_.push_back(comm.registerAbortHook([logging] { logging->broken(); }));
}

void ClogHook::unregister() {
  for (const RemovableHandle& handle : handles_) handle.remove();
  handles_.clear();
}

}  // namespace torch::comms
