#include "mscclpp/executor.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "ctran/communicator.h"
#include "ctran/plan.h"

namespace mscclpp {
namespace {

/// Where the text of a member of the outermost object of `json` is.
struct Place {
  size_t begin;
  size_t bytes;
};
Place member(const std::string& json, const std::string& name) {
  int depth = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    size_t end = i + 1;
    while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
    if (depth == 1 && json.substr(i + 1, end - i - 1) == name) {
      const size_t value = json.find_first_not_of(" \t\r\n:", end + 1);
      if (value != std::string::npos && json[value] == '"') {
        const size_t begin = value + 1;
        return {begin, std::min(json.find('"', begin), json.size()) - begin};
      }
    }
    i = end;
  }
  throw Error("the plan does not say its " + name, ErrorCode::InvalidUsage);
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

struct Shape {
  ctran::CollectiveKind kind;
  bool manyInputs;   // the input holds a block for each rank
  bool manyOutputs;  // the output does
};

const std::map<std::string, Shape>& shapes() {
  using Kind = ctran::CollectiveKind;
  static const std::map<std::string, Shape> all{
      {"allreduce", {Kind::AllReduce, false, false}},
      {"allgather", {Kind::AllGather, false, true}},
      {"reducescatter", {Kind::ReduceScatter, true, false}},
      {"alltoall", {Kind::AllToAll, true, true}},
  };
  return all;
}

/// Elements of a block.
size_t countOf(const Shape& shape, size_t inputBytes, size_t outputBytes, size_t ranks,
               size_t element) {
  const size_t inputs = shape.manyInputs ? ranks : 1, outputs = shape.manyOutputs ? ranks : 1;
  const size_t count = inputBytes / inputs / element;
  if (inputBytes == count * inputs * element && outputBytes % outputs == 0 &&
      outputBytes / outputs == count * element) {
    return count;
  }
  throw Error("an input of " + std::to_string(inputBytes) + " and an output of " +
                  std::to_string(outputBytes) + " bytes do not belong together: the input is " +
                  std::to_string(inputs) + " and the output " + std::to_string(outputs) +
                  " blocks of whole elements of " + std::to_string(element) + " bytes",
              ErrorCode::ExecutorError);
}

ctran::DataType engineType(DataType type) {
  using Type = ctran::DataType;
  switch (type) {
    case DataType::INT32:
      return Type::Int32;
    case DataType::UINT32:
      return Type::UInt32;
    case DataType::FLOAT16:
      return Type::Float16;
    case DataType::FLOAT32:
      return Type::Float32;
    case DataType::BFLOAT16:
      return Type::BFloat16;
    case DataType::FLOAT8_E4M3:
      return Type::Float8E4M3;
    case DataType::FLOAT8_E5M2:
      return Type::Float8E5M2;
    case DataType::UINT8:
      return Type::UInt8;
    case DataType::INT8:
      return Type::Int8;
    case DataType::INT16:
      return Type::Int16;
    case DataType::INT64:
      return Type::Int64;
    case DataType::UINT16:
      return Type::UInt16;
    case DataType::UINT64:
      return Type::UInt64;
    case DataType::FLOAT64:
      return Type::Float64;
    case DataType::COMPLEX64:
      return Type::Complex64;
    case DataType::COMPLEX128:
      return Type::Complex128;
    case DataType::BOOL:
      return Type::Bool;
    case DataType::AUTO:
      break;
  }
  throw Error("a plan needs a data type", ErrorCode::InvalidUsage);
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
}

const std::string& ExecutionPlan::name() const { return name_; }
const std::string& ExecutionPlan::collective() const { return collective_; }
const std::string& ExecutionPlan::json() const { return json_; }

class Executor::Impl {
 public:
  explicit Impl(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)),
        bootstrap_(std::dynamic_pointer_cast<TcpBootstrap>(communicator_->bootstrap())) {
    if (!bootstrap_) throw Error("an Executor needs a TcpBootstrap", ErrorCode::InvalidUsage);
  }
  ~Impl() {
    for (const auto& [json, number] : registered_) ctran::api::removePlan(number);
  }

  void execute(int rank, const void* input, void* output, size_t inputBytes, size_t outputBytes,
               DataType type, const ExecutionPlan& plan) {
    if (rank != bootstrap_->getRank()) {
      throw Error(
          "this is rank " + std::to_string(bootstrap_->getRank()) + ", not " + std::to_string(rank),
          ErrorCode::ExecutorError);
    }
    const auto shape = shapes().find(plan.collective());
    if (shape == shapes().end()) {
      throw Error("plans of " + plan.collective() + " cannot be executed",
                  ErrorCode::ExecutorError);
    }
    try {
      const std::string name = known(plan);
      const ctran::DataType element = engineType(type);
      ctran::api::Call call;
      call.kind = shape->second.kind;
      call.type = element;
      call.input = input;
      call.output = output;
      call.op = reduction(plan.json());
      call.count = countOf(shape->second, inputBytes, outputBytes,
                           static_cast<size_t>(bootstrap_->getNranks()), sizeOf(element));
      call.hints = {{"ctran::algorithm", "plan:" + name}};
      bootstrap_->engine()->run(call);
    } catch (const ctran::Error& error) {
      throw Error(error.what(), ErrorCode::ExecutorError);
    }
  }

 private:
  /// The name under which the engine knows the plan: two plans of one name have two.
  std::string known(const ExecutionPlan& plan) {
    const std::string& json = plan.json();
    const std::string name = plan.name() + "-" + std::to_string(std::hash<std::string>()(json));
    if (!registered_.contains(json)) {
      const Place place = member(json, "name");
      std::string renamed = json;
      renamed.replace(place.begin, place.bytes, name);
      registered_[json] = ctran::api::registerProgram(renamed);
    }
    return name;
  }

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<TcpBootstrap> bootstrap_;
  std::map<std::string, uint64_t> registered_;  // by JSON
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
