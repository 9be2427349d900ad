#include "registered_algorithm.h"

#include <algorithm>

#include "calls.h"
#include "ctran/function.h"
#include "engine_errors.h"

namespace mscclpp {
namespace {

using ctran::ErrorKind;
using ctran::api::Function;
using ctran::api::FunctionCall;
using ctran::api::FunctionQuery;

constexpr int kDataTypes = 17, kReductions = 8;

ErrorKind kindOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::RemoteError:
      return ErrorKind::PeerLost;
    case ErrorCode::InvalidUsage:
    case ErrorCode::ExecutorError:
      return ErrorKind::Unsupported;
    case ErrorCode::Timeout:
      return ErrorKind::Timeout;
    case ErrorCode::Aborted:
      return ErrorKind::Aborted;
    default:
      return ErrorKind::System;
  }
}

/// Errors of this interface as the engine's.
template <class Body>
void asEngines(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw ctran::Error(kindOf(error.getErrorCode()), error.what());
  }
}

DataType typeOf(ctran::DataType type) {
  for (int t = 0; t < kDataTypes; ++t) {
    if (engineType(static_cast<DataType>(t)) == type) return static_cast<DataType>(t);
  }
  return DataType::UINT8;
}

ReduceOp reductionOf(ctran::ReduceKind kind) {
  for (int op = 0; op < kReductions; ++op) {
    if (engineReduction(static_cast<ReduceOp>(op)) == kind) return static_cast<ReduceOp>(op);
  }
  return ReduceOp::NOP;
}

bool reduces(ctran::CollectiveKind kind) {
  return kind == ctran::CollectiveKind::AllReduce || kind == ctran::CollectiveKind::ReduceScatter;
}

/// For which calls an algorithm is.
struct Conditions {
  ctran::CollectiveKind kind;
  Algorithm::Constraint constraint;
  std::pair<size_t, size_t> range;
  std::vector<DataType> types;
  std::vector<ReduceOp> reductions;

  std::string whyNot(const FunctionQuery& query) const {
    // The ranks are of one host.
    for (const int ranks : {constraint.worldSize, constraint.nRanksPerNode}) {
      if (ranks != 0 && ranks != query.size) return "it is for " + std::to_string(ranks) + " ranks";
    }
    const size_t bytes = std::max(query.inputBytes, query.outputBytes);
    if (bytes < range.first || bytes > range.second) {
      return "it is for messages of " + std::to_string(range.first) + " to " +
             std::to_string(range.second) + " bytes";
    }
    if (!reduces(kind)) return {};
    if (std::none_of(types.begin(), types.end(),
                     [&](DataType type) { return engineType(type) == query.type; })) {
      return "it is not registered for " + std::string(ctran::nameOf(query.type));
    }
    if (query.op == ctran::ReduceKind::PremulSum ||
        std::none_of(reductions.begin(), reductions.end(),
                     [&](ReduceOp op) { return engineReduction(op) == query.op; })) {
      return "it is not registered for the reduction " + std::string(ctran::nameOf(query.op));
    }
    return {};
  }
};

/// What is kept with a communicator that is served.
class Served {
 public:
  Served(std::shared_ptr<NativeAlgorithm> algorithm, std::shared_ptr<ctran::Communicator> group)
      : algorithm_(std::move(algorithm)),
        communicator_(std::make_shared<Communicator>(std::make_shared<TcpBootstrap>(
            std::make_shared<ctran::api::Communicator>(std::move(group))))) {}
  /// Contexts of the algorithm may hold the communicator, and would do so for ever.
  ~Served() { algorithm_->reset(*communicator_); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

 private:
  const std::shared_ptr<NativeAlgorithm> algorithm_;
  const std::shared_ptr<Communicator> communicator_;
};

void serve(const std::shared_ptr<NativeAlgorithm>& algorithm, const FunctionCall& call) {
  auto served = std::static_pointer_cast<Served>(call.kept);
  if (!served) {
    served = std::make_shared<Served>(algorithm, call.group);
    call.kept = served;
  }
  Extras extras;
  if (call.kind == ctran::CollectiveKind::Broadcast) {
    extras["root"] = static_cast<uintptr_t>(call.root);
  }
  const CommResult result = algorithm->execute(
      served->communicator(), call.input, call.output, call.inputBytes, call.outputBytes,
      typeOf(call.type), reduces(call.kind) ? reductionOf(call.op) : ReduceOp::NOP,
      static_cast<cudaStream_t>(call.stream), nullptr, 0, 0, false, extras, DataType::AUTO);
  if (result != CommResult::CommSuccess) {
    throw ctran::Error(ErrorKind::Unsupported,
                       "it returned " + std::to_string(static_cast<int>(result)) +
                           ", a mscclpp::CommResult, for " + std::to_string(call.inputBytes) +
                           " bytes of " + std::string(ctran::nameOf(call.type)));
  }
}

}  // namespace

uint64_t registerAlgorithm(std::shared_ptr<Algorithm> algorithm, const AlgorithmUse& use) {
  const auto native = std::dynamic_pointer_cast<NativeAlgorithm>(algorithm);
  if (!native) {
    throw Error(algorithm->name() + " is no mscclpp::NativeAlgorithm: only those can be registered",
                ErrorCode::InvalidUsage);
  }
  const Shape* const shape = shapeOf(algorithm->collective());
  if (shape == nullptr) {
    throw Error(algorithm->name() + " is of the collective '" + algorithm->collective() +
                    "', which torchcomms does not have",
                ErrorCode::InvalidUsage);
  }
  Function function;
  function.name = algorithm->name();
  function.kind = shape->kind;
  function.onGpus = native->device() == DeviceType::GPU;
  function.places = static_cast<Function::Places>(algorithm->bufferMode());
  function.owner = algorithm;
  function.whyNot = [conditions = Conditions{shape->kind, algorithm->constraint(),
                                             algorithm->messageRange(), use.types, use.reductions}](
                        const FunctionQuery& query) { return conditions.whyNot(query); };
  function.run = [native](const FunctionCall& call) { asEngines([&] { serve(native, call); }); };
  function.check = [](void* kept) {
    asEngines([&] { static_cast<const Served*>(kept)->communicator()->checkWaits(); });
  };
  ctran::api::PlanUse engineUse;
  engineUse.communicator = use.communicator;
  engineUse.preferred = use.preferred;
  return translated([&] { return ctran::api::registerFunction(std::move(function), engineUse); });
}

}  // namespace mscclpp
