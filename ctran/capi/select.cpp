#include "ctran/capi/select.h"

#include <cstdlib>
#include <cstring>

#include "ctran/base/error.h"
#include "ctran/engine/local_communicator.h"
#include "ctran/engine/named.h"
#include "ctran/select/selector.h"
#include "ctran/select/tuner.h"
#include "ctran/topology/host.h"

namespace ctran {
namespace {

using Progress = void (*)(double, const char*);

std::shared_ptr<LocalCommunicator> communicatorOf(const Json& request) {
  const std::string& name = request.at("communicator").asString();
  const auto found = findCommunicator(name, static_cast<int>(request.at("rank").asInt()));
  if (!found) {
    throw Error(ErrorKind::InvalidArgument, "there is no communicator '" + name + "' of ctran");
  }
  auto local = std::dynamic_pointer_cast<LocalCommunicator>(found);
  if (local) return local;
  throw Error(ErrorKind::Unsupported,
              "communicator '" + name +
                  "' has ranks on several hosts, whose algorithms are chosen "
                  "by the hint ctran::algorithm and by size alone");
}

std::shared_ptr<Explainer> explainerOf(const Json& request) {
  return findExplainer(request.at("communicator").asString(),
                       static_cast<int>(request.at("rank").asInt()));
}

Json explained(const Json& request) {
  const std::string& name = request.at("collective").asString();
  const auto kind = collectiveKindNamed(name);
  if (!kind || shmChoices(*kind).empty()) {
    throw Error(ErrorKind::InvalidArgument, "'" + name + "' is no collective");
  }
  const int64_t bytes = request.at("bytes").asInt();
  if (bytes < 0) throw Error(ErrorKind::InvalidArgument, "bytes must not be negative");
  if (request.find("communicator") != nullptr) {
    const auto explainer = explainerOf(request);
    if (explainer) return explainer->explain(*kind, static_cast<size_t>(bytes)).toJson();
    return communicatorOf(request)->explain(*kind, static_cast<size_t>(bytes)).toJson();
  }
  const auto ranks = static_cast<int>(request.at("ranks").asInt());
  if (ranks < 1 || ranks > Arena::kMaxRanks) {
    throw Error(ErrorKind::InvalidArgument,
                "one host has 1 to " + std::to_string(Arena::kMaxRanks) + " ranks here");
  }
  Selector selector(ranks);
  selector.prefer({}, userPreferences());
  selector.use(TuningTable::load(ranks));
  return selector.explain(*kind, static_cast<size_t>(bytes)).toJson();
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

Json tuned(const Json& request, Progress progress) {
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
  json.set("path", Json(TuningTable::pathFor(table.ranks)));
  return json;
}

Json answer(const Json& request, Progress progress) {
  const std::string& what = request.at("do").asString();
  if (what == "host") return thisHost().toJson();
  if (what == "explain") return explained(request);
  if (what == "tune") return tuned(request, progress);
  if (what == "force") return forced(request);
  if (what == "use") return used(request);
  throw Error(ErrorKind::InvalidArgument, "there is nothing to do called '" + what + "'");
}

}  // namespace
}  // namespace ctran

char* ctran_select_call(const char* request, void (*progress)(double, const char*)) {
  using ctran::Json;
  Json result = Json::object();
  try {
    result.set("ok", ctran::answer(Json::parse(request, "the request"), progress));
  } catch (const ctran::Error& error) {
    result = Json::object();
    result.set("error", Json(error.what())).set("kind", Json(static_cast<int>(error.kind())));
  } catch (const std::exception& error) {  // no memory, for example
    result = Json::object();
    result.set("error", Json(error.what()));
    result.set("kind", Json(static_cast<int>(ctran::ErrorKind::System)));
  }
  return ::strdup(result.print().c_str());
}

void ctran_select_free(char* text) { std::free(text); }
