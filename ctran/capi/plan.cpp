#include "ctran/capi/plan.h"

#include <cstdlib>

#include "ctran/base/error.h"
#include "ctran/capi/call.h"
#include "ctran/capi/proof.h"
#include "ctran/plan/estimate.h"
#include "ctran/plan/fit.h"
#include "ctran/plan/library.h"
#include "ctran/plan/simulate.h"
#include "ctran/plan/staging.h"
#include "ctran/plan/synthesis/synthesize.h"
#include "ctran/select/plans.h"

namespace ctran {
namespace {

Json listLibrary() {
  Json all = Json::array();
  for (const plan::BuiltIn& builtIn : plan::library()) {
    Json entry = Json::object();
    entry.set("name", Json(builtIn.name)).set("collective", Json(nameOf(builtIn.kind)));
    entry.set("summary", Json(builtIn.summary));
    all.push(std::move(entry));
  }
  return all;
}

Json make(const Json& request) {
  plan::Recipe recipe;
  recipe.ranks = request.intOr("ranks", recipe.ranks);
  recipe.root = request.intOr("root", recipe.root);
  recipe.lanes = request.intOr("lanes", recipe.lanes);
  recipe.chunks = request.intOr("chunks", recipe.chunks);
  recipe.ranksPerHost = request.intOr("ranks_per_host", recipe.ranksPerHost);
  return toJson(plan::makePlan(request.at("name").asString(), recipe));
}

Json simulate(const Json& request) {
  const Json* machine = request.find("machine");
  const int64_t bytes = request.at("bytes").asInt();
  if (bytes < 0) throw Error(ErrorKind::InvalidArgument, "bytes must not be negative");
  return toJson(plan::simulate(plan::fromJson(request.at("plan")),
                               machine ? plan::machineFromJson(*machine) : plan::Machine{},
                               static_cast<size_t>(bytes), request.intOr("units", 1)));
}

plan::Topology topologyOf(const Json& json) {
  return json.type() == Json::Type::String ? plan::makeTopology(json.asString())
                                           : plan::topologyFromJson(json);
}

Json synthesize(const Json& request) {
  const std::string& collective = request.at("collective").asString();
  const auto kind = collectiveKindNamed(collective);
  if (!kind) {
    throw Error(ErrorKind::InvalidArgument, "there is no collective '" + collective + "'");
  }
  const plan::Topology topology = topologyOf(request.at("topology"));
  const plan::Synthesis made =
      plan::synthesize(topology, *kind, request.intOr("shares", 64), request.intOr("depth", 2));
  Json answer = Json::object();
  answer.set("plan", toJson(made.plan)).set("topology", toJson(topology));
  answer.set("routes", toJson(made.routes));
  answer.set("bound", Json(made.bound.value())).set("rate", Json(made.rate.value()));
  answer.set("bound_seconds_per_byte", Json(made.boundFor(1)));
  answer.set("seconds_per_byte", Json(made.secondsFor(1)));
  return answer;
}

/// "samples": [[name, ranks, bytes of a block, units, seconds], ...]; with "fit" the machine is
/// fitted to them, else only compared.
Json fitted(const Json& request) {
  std::vector<plan::Sample> samples;
  for (const Json& item : request.at("samples").items()) {
    const auto& values = item.items();
    if (values.size() != 5) {
      throw Error(ErrorKind::InvalidArgument, "a sample is [plan, ranks, bytes, units, seconds]");
    }
    plan::Recipe recipe;
    recipe.ranks = static_cast<int>(values[1].asInt());
    samples.push_back({plan::makePlan(values[0].asString(), recipe),
                       static_cast<size_t>(values[2].asInt()), static_cast<int>(values[3].asInt()),
                       values[4].asDouble()});
  }
  const plan::Machine machine = plan::machineFromJson(request.at("machine"));
  const plan::Fit made =
      request.at("fit").asBool() ? plan::fit(samples, machine) : plan::compare(samples, machine);
  Json errors = Json::array();
  for (const double error : made.errors) errors.push(Json(error));
  Json answer = Json::object();
  answer.set("machine", toJson(made.machine)).set("errors", std::move(errors));
  answer.set("median", Json(made.median));
  return answer;
}

Json registered(const Json& request) {
  PlanUse use;
  if (const Json* name = request.find("communicator")) use.communicator = name->asString();
  const auto bytes = [&](std::string_view name, size_t& value) {
    const Json* given = request.find(name);
    if (given == nullptr) return;
    if (given->asInt() < 0) {
      throw Error(ErrorKind::InvalidArgument, std::string(name) + " must not be negative");
    }
    value = static_cast<size_t>(given->asInt());
  };
  bytes("min_bytes", use.minBytes);
  bytes("max_bytes", use.maxBytes);
  if (const Json* prefer = request.find("prefer")) use.preferred = prefer->asBool();
  const bool stages = request.boolOr("stage", false), proved = request.boolOr("proved", true);
  const plan::Plan plan = plan::fromJson(request.at("plan"));
  const uint64_t number = !proved  ? registerUnproved(plan, use)
                          : stages ? registerStaged(plan, use)
                                   : registerPlan(plan, use);
  return Json(static_cast<int64_t>(number));
}

Json answerPlan(const Json& request) {
  const std::string& what = request.at("do").asString();
  if (what == "library") return listLibrary();
  if (what == "make") return make(request);
  if (what == "lower") return lowered(request);
  if (what == "prove") return proved(request);
  if (what == "lower_unproved") return loweredUnproved(request);
  if (what == "stage") return toJson(plan::staged(plan::fromJson(request.at("plan"))));
  if (what == "text") return Json(plan::toText(plan::fromJson(request.at("plan"))));
  if (what == "verify") return verified(request);
  if (what == "simulate") return simulate(request);
  if (what == "estimate") {
    return Json(plan::estimate(
        request.at("name").asString(), static_cast<int>(request.at("ranks").asInt()),
        plan::machineFromJson(request.at("machine")), request.at("bytes").asDouble()));
  }
  if (what == "synthesize") return synthesize(request);
  if (what == "fit") return fitted(request);
  if (what == "register") return registered(request);
  if (what == "remove") {
    return Json(removePlan(static_cast<uint64_t>(request.at("number").asInt())));
  }
  throw Error(ErrorKind::InvalidArgument, "there is nothing to do called '" + what + "'");
}

}  // namespace
}  // namespace ctran

char* ctran_plan_call(const char* request) { return ctran::answered(request, ctran::answerPlan); }

void ctran_plan_free(char* text) { std::free(text); }
