#include "ctran/capi/select.h"

#include <cstdlib>

#include "ctran/base/error.h"
#include "ctran/capi/call.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/create.h"
#include "ctran/engine/named.h"
#include "ctran/select/selector.h"
#include "ctran/select/tuner.h"
#include "ctran/topology/host.h"

namespace ctran {
namespace {

using OnProgress = void (*)(double, const char*);

uint64_t tokenOf(const Json& request) { return static_cast<uint64_t>(request.at("token").asInt()); }

std::shared_ptr<Communicator> communicatorOf(const Json& request) {
  if (auto communicator = findCommunicator(tokenOf(request))) return communicator;
  throw Error(ErrorKind::InvalidArgument,
              "there is no communicator '" + request.at("communicator").asString() + "' of ctran");
}

std::shared_ptr<Explainer> explainerOf(const Json& request) {
  return findExplainer(tokenOf(request));
}

/// "type", where it is given.
DataType typeOf(const Json& request) {
  const Json* name = request.find("type");
  if (name == nullptr) return DataType::UInt8;
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    if (nameOf(type) == name->asString()) return type;
  }
  throw Error(ErrorKind::InvalidArgument, "'" + name->asString() + "' is no data type");
}

/// "hints", of the call, where they are given.
std::map<std::string, std::string> hintsIn(const Json& request) {
  std::map<std::string, std::string> hints;
  if (const Json* given = request.find("hints")) {
    for (const auto& [key, value] : given->members()) hints[key] = value.asString();
  }
  return hints;
}

/// A communicator that is not there yet: so many ranks on each of so many hosts.
Explanation explainShape(CollectiveKind kind, size_t bytes, DataType type, int ranks, int hosts) {
  if (ranks < 1 || ranks > Arena::kMaxRanks) {
    throw Error(ErrorKind::InvalidArgument,
                "one host has 1 to " + std::to_string(Arena::kMaxRanks) + " ranks here");
  }
  if (hosts < 1 || hosts > kMaxRanks / ranks) {
    throw Error(ErrorKind::InvalidArgument,
                "a communicator has 1 to " + std::to_string(kMaxRanks) + " ranks");
  }
  if (hosts > 1) {
    std::vector<int> hostOf;
    for (int r = 0; r < ranks * hosts; ++r) hostOf.push_back(r / ranks);
    const HostMap map(hostOf, 0, Arena::kMaxRanks);
    Selector selector(map);
    selector.prefer({}, userPreferences());
    selector.use(TuningTable::load(map.size(), {}, map.shape()));
    return selector.explain(kind, bytes, toleratesPartialSums(type, ReduceKind::Sum));
  }
  Selector selector(ranks);
  selector.prefer({}, userPreferences());
  selector.use(TuningTable::load(ranks));
  return selector.explain(kind, bytes);
}

bool isExplained(CollectiveKind kind) {
  return !algorithmsOf(AlgorithmPlace::SharedMemory, kind).empty();
}

std::string namesOfExplained() {
  std::string names;
  for (size_t k = 0; k < kCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    if (!isExplained(kind)) continue;
    names.append(names.empty() ? "" : ", ").append(nameOf(kind));
  }
  return names;
}

Json explained(const Json& request) {
  const std::string& name = request.at("collective").asString();
  const auto kind = collectiveKindNamed(name);
  if (!kind || !isExplained(*kind)) {
    throw Error(ErrorKind::InvalidArgument, "'" + name + "' is no collective", {}, {},
                "there are " + namesOfExplained());
  }
  if (request.at("bytes").asInt() < 0) {
    throw Error(ErrorKind::InvalidArgument, "bytes must not be negative");
  }
  const auto bytes = static_cast<size_t>(request.at("bytes").asInt());
  const DataType type = typeOf(request);
  if (request.find("communicator") != nullptr) {
    if (const auto explainer = explainerOf(request)) {
      std::shared_ptr<const CallHints> hints;
      // That of ncclx without GPUs that reach each other has none of ctran.
      const auto known = findCommunicator(tokenOf(request));
      if (known) hints = known->hintsOfCall(hintsIn(request));
      return explainer->explain(*kind, bytes, type, hints.get()).toJson();
    }
    const auto communicator = communicatorOf(request);
    auto hints = communicator->hintsOfCall(hintsIn(request));
    // What sums is asked for floats as a rule; some algorithms do no others.
    const bool isUnsaid = request.find("type") == nullptr && isReduction(*kind);
    const DataType likely = isUnsaid && bytes % sizeof(float) == 0 ? DataType::Float32 : type;
    return communicator->explain(*kind, bytes, likely, std::move(hints)).toJson();
  }
  const Json* hosts = request.find("hosts");
  return explainShape(*kind, bytes, type, static_cast<int>(request.at("ranks").asInt()),
                      hosts == nullptr ? 1 : static_cast<int>(hosts->asInt()))
      .toJson();
}

/// "prepared": false for a communicator that is none of ctran's on GPUs, of which nothing is done.
Json prepared(const Json& request) {
  Json answer = Json::object();
  const auto explainer = explainerOf(request);
  answer.set("prepared", Json(explainer != nullptr));
  if (!explainer) return answer;
  const auto kind = collectiveKindNamed(request.at("collective").asString());
  if (!kind || request.at("bytes").asInt() < 0) {
    throw Error(ErrorKind::InvalidArgument, "there is nothing to prepare of so many bytes of '" +
                                                request.at("collective").asString() + "'");
  }
  std::optional<ReduceKind> op;
  for (const ReduceKind one :
       {ReduceKind::Sum, ReduceKind::Product, ReduceKind::Min, ReduceKind::Max, ReduceKind::BitAnd,
        ReduceKind::BitOr, ReduceKind::BitXor, ReduceKind::Avg, ReduceKind::PremulSum}) {
    if (nameOf(one) == request.at("reduction").asString()) op = one;
  }
  if (!op) {
    throw Error(ErrorKind::InvalidArgument,
                "'" + request.at("reduction").asString() + "' is no reduction");
  }
  explainer->prepareCall(*kind, static_cast<size_t>(request.at("bytes").asInt()), typeOf(request),
                         *op, communicatorOf(request)->hintsOfCall(hintsIn(request)));
  return answer;
}

/// Whether the caller measures what serves the communicator: on GPUs, in graphs.
Json isMeasuredOutside(const Json& request) {
  Json answer = Json::object();
  answer.set("outside", Json(explainerOf(request) != nullptr));
  return answer;
}

std::shared_ptr<Explainer> measuredOf(const Json& request) {
  if (auto found = explainerOf(request)) return found;
  throw Error(ErrorKind::InvalidArgument, "there is no communicator '" +
                                              request.at("communicator").asString() +
                                              "' whose members could be measured");
}

Json forced(const Json& request) {
  measuredOf(request)->force(request.at("algorithm").asString());
  return Json::object();
}

/// "save": keeps it, too.
Json used(const Json& request) {
  Json table = Json::object();
  table.set("format", Json(1)).set("machine", Json("")).set("ranks", Json(0));
  table.set("measured", request.at("measured"));
  const TuningTable kept = measuredOf(request)->use(TuningTable::fromJson(table));
  if (request.at("save").asBool()) kept.save();
  Json answer = Json::object();
  answer.set("path", Json(TuningTable::pathFor(kept.ranks, kept.machine)));
  return answer;
}

Json tuned(const Json& request, OnProgress progress) {
  TuneOptions options;
  options.seconds = request.at("seconds").asDouble();
  if (!(options.seconds > 0)) {
    throw Error(ErrorKind::InvalidArgument, "the time to tune in must be positive");
  }
  if (progress != nullptr) {
    options.progress = [progress](double done, const std::string& next) {
      progress(done, next.c_str());
    };
  }
  const TuningTable table = communicatorOf(request)->tune(options);
  Json json = table.toJson();
  json.set("path", Json(TuningTable::pathFor(table.ranks, table.machine, table.shape)));
  return json;
}

Json answerSelect(const Json& request, OnProgress progress) {
  const std::string& what = request.at("do").asString();
  if (what == "host") return thisHost().toJson();
  if (what == "explain") return explained(request);
  if (what == "prepare") return prepared(request);
  if (what == "tune") return tuned(request, progress);
  if (what == "measured") return isMeasuredOutside(request);
  if (what == "force") return forced(request);
  if (what == "use") return used(request);
  throw Error(ErrorKind::InvalidArgument, "there is nothing to do called '" + what + "'");
}

}  // namespace
}  // namespace ctran

char* ctran_select_call(const char* request, void (*progress)(double, const char*)) {
  return ctran::answered(request, [progress](const ctran::Json& parsed) {
    return ctran::answerSelect(parsed, progress);
  });
}

void ctran_select_free(char* text) { std::free(text); }
