#include "mscclpp/executor.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "calls.h"
#include "ctran/base/overlap.h"
#include "ctran/gpu.h"
#include "ctran/plan.h"

namespace mscclpp {
namespace {

/// Where the value of a member of the outermost object of `json` begins; npos: it has none.
size_t valueOf(const std::string& json, const std::string& name) {
  int depth = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    size_t end = i + 1;
    while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
    if (depth == 1 && json.substr(i + 1, end - i - 1) == name) {
      const size_t value = json.find_first_not_of(" \t\r\n", end + 1);
      if (value != std::string::npos && json[value] == ':') {
        return json.find_first_not_of(" \t\r\n", value + 1);
      }
    }
    i = end;
  }
  return std::string::npos;
}

/// Where such a text is.
struct Place {
  size_t begin;
  size_t bytes;
};
Place member(const std::string& json, const std::string& name) {
  const size_t value = valueOf(json, name);
  if (value == std::string::npos || json[value] != '"') {
    throw Error("the plan does not say its " + name, ErrorCode::InvalidUsage);
  }
  const size_t begin = value + 1;
  return {begin, std::min(json.find('"', begin), json.size()) - begin};
}

uint64_t number(const std::string& json, const std::string& name, uint64_t otherwise) {
  const size_t value = valueOf(json, name);
  if (value == std::string::npos) return otherwise;
  uint64_t found = 0;
  const char* const begin = json.data() + value;
  return std::from_chars(begin, json.data() + json.size(), found).ec == std::errc() ? found
                                                                                    : otherwise;
}

std::string text(const std::string& json, const std::string& name) {
  const Place place = member(json, name);
  return json.substr(place.begin, place.bytes);
}

/// What the operations of the plan reduce by; a plan that does not reduce sums nothing.
ctran::ReduceOp reduction(const std::string& json) {
  const std::string key = "\"reduce_op\"";
  std::set<std::string> found;
  for (size_t at = json.find(key); at != std::string::npos; at = json.find(key, at)) {
    at = json.find_first_not_of(" \t\r\n:", at + key.size());
    if (at == std::string::npos || json[at] != '"') continue;  // null
    const size_t end = std::min(json.find('"', at + 1), json.size());
    found.insert(json.substr(at + 1, end - at - 1));
    at = end;
  }
  if (found.size() > 1) {
    throw Error("the plan mixes reductions: " + *found.begin() + " and " + *found.rbegin(),
                ErrorCode::ExecutorError);
  }
  using Kind = ctran::ReduceKind;
  if (found.empty() || *found.begin() == "sum") return {.kind = Kind::Sum};
  if (*found.begin() == "min") return {.kind = Kind::Min};
  if (*found.begin() == "max") return {.kind = Kind::Max};
  throw Error("the plan reduces by " + *found.begin() + ", not by sum, min or max",
              ErrorCode::ExecutorError);
}

/// Elements of a chunk. Throws Error(ExecutorError) where the sizes do not belong together.
size_t countOf(const ctran::api::OpenBuffers& open, size_t inputBytes, size_t outputBytes,
               size_t element) {
  const auto inputs = static_cast<size_t>(open.inputs), outputs = static_cast<size_t>(open.outputs);
  const size_t chunk = inputs != 0 ? inputBytes / inputs : outputBytes / outputs;
  if (chunk * inputs == inputBytes && chunk * outputs == outputBytes && chunk % element == 0) {
    return chunk / element;
  }
  throw Error("an input of " + std::to_string(inputBytes) + " and an output of " +
                  std::to_string(outputBytes) + " bytes do not belong together: the plan has " +
                  std::to_string(inputs) + " and " + std::to_string(outputs) +
                  " chunks of them, of whole elements and one size",
              ErrorCode::ExecutorError);
}

void checkApart(const void* input, size_t inputBytes, const void* output, size_t outputBytes) {
  if (input == output && inputBytes == outputBytes) return;
  if (!ctran::overlap({input, inputBytes}, {output, outputBytes})) return;
  throw Error("the input and the output overlap; in place, they are the same",
              ErrorCode::ExecutorError);
}

}  // namespace

ExecutionPlan::ExecutionPlan(const std::string& planPath, int) {
  std::ifstream file(planPath);
  std::ostringstream read;
  read << file.rdbuf();
  if (!file) throw Error("the plan " + planPath + " cannot be read", ErrorCode::InvalidUsage);
  json_ = read.str();
  name_ = text(json_, "name");
  collective_ = text(json_, "collective");
  least_ = static_cast<size_t>(number(json_, "min_message_size", 0));
  most_ =
      static_cast<size_t>(number(json_, "max_message_size", std::numeric_limits<uint64_t>::max()));
}

const std::string& ExecutionPlan::name() const { return name_; }
const std::string& ExecutionPlan::collective() const { return collective_; }
size_t ExecutionPlan::minMessageSize() const { return least_; }
size_t ExecutionPlan::maxMessageSize() const { return most_; }
const std::string& ExecutionPlan::json() const { return json_; }

class Executor::Impl {
 public:
  explicit Impl(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)),
        bootstrap_(std::dynamic_pointer_cast<TcpBootstrap>(communicator_->bootstrap())) {
    if (!bootstrap_) throw Error("an Executor needs a TcpBootstrap", ErrorCode::InvalidUsage);
  }
  ~Impl() {
    for (const auto& [json, known] : known_) ctran::api::removePlan(known.number);
  }

  void execute(int rank, const void* input, void* output, size_t inputBytes, size_t outputBytes,
               DataType type, const ExecutionPlan& plan) {
    if (rank != bootstrap_->getRank()) {
      throw Error(
          "this is rank " + std::to_string(bootstrap_->getRank()) + ", not " + std::to_string(rank),
          ErrorCode::ExecutorError);
    }
    if (ctran::api::gpuOf(input) || ctran::api::gpuOf(output)) {
      throw Error("an Executor is for memory of the host; on GPUs, execute the plan from Python",
                  ErrorCode::ExecutorError);
    }
    try {
      const Known& known = knownOf(plan);
      const ctran::DataType element = engineType(type);
      ctran::api::Call call;
      call.type = element;
      call.input = input;
      call.output = output;
      call.op = reduction(plan.json());
      call.prepared = known.hints;
      if (known.open) {
        call.kind = ctran::CollectiveKind::AllReduce;
        call.count = countOf(*known.open, inputBytes, outputBytes, sizeOf(element));
        checkApart(input, inputBytes, output, outputBytes);
        checkServes(known.name, call);
      } else {
        const Shape& shape = *shapeOf(plan.collective());
        call.kind = shape.kind;
        call.count = countOf(shape, inputBytes, outputBytes,
                             static_cast<size_t>(bootstrap_->getNranks()), sizeOf(element));
      }
      bootstrap_->engine()->run(call);
    } catch (const ctran::Error& error) {
      throw Error(error.what(), ErrorCode::ExecutorError);
    }
  }

 private:
  /// A plan as the engine knows it.
  struct Known {
    uint64_t number;
    std::string name;  ///< two plans of one name have two
    std::shared_ptr<const ctran::CallHints> hints;
    std::optional<ctran::api::OpenBuffers> open;  ///< of one that promises no result
  };

  const Known& knownOf(const ExecutionPlan& plan) {
    const std::string& json = plan.json();
    const auto found = known_.find(json);
    if (found != known_.end()) return found->second;
    const std::string name = plan.name() + "-" + std::to_string(std::hash<std::string>()(json));
    const Place place = member(json, "name");
    std::string renamed = json;
    renamed.replace(place.begin, place.bytes, name);
    const auto open = ctran::api::openBuffers(renamed);
    const uint64_t number = ctran::api::registerProgram(renamed);
    const ctran::api::Hints hints{{"ctran::algorithm", "plan:" + name}};
    return known_[json] = {number, "plan:" + name, bootstrap_->engine()->prepare(hints), open};
  }

  /// Nothing else does what a program does that promises no result.
  void checkServes(const std::string& name, const ctran::api::Call& call) const {
    const auto found = bootstrap_->engine()->explain(call.kind, call.count * sizeOf(call.type),
                                                     call.type, {{"ctran::algorithm", name}});
    if (found.algorithm == name) return;
    throw Error("'" + name +
                    "' cannot be executed here: it spans hosts, or has more than the "
                    "engine executes",
                ErrorCode::ExecutorError);
  }

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<TcpBootstrap> bootstrap_;
  std::map<std::string, Known> known_;  // by JSON
};

Executor::Executor(std::shared_ptr<Communicator> comm)
    : impl_(std::make_unique<Impl>(std::move(comm))) {}
Executor::~Executor() = default;

void Executor::execute(int rank, void* sendbuff, void* recvBuff, size_t sendBuffSize,
                       size_t recvBuffSize, DataType dataType, const ExecutionPlan& plan,
                       cudaStream_t, PacketType) {
  impl_->execute(rank, sendbuff, recvBuff, sendBuffSize, recvBuffSize, dataType, plan);
}

}  // namespace mscclpp
