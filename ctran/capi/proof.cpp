#include "ctran/capi/proof.h"

#include "ctran/plan/mscclpp/prove.h"
#include "ctran/plan/verify.h"

namespace ctran {
namespace {

template <class List, class Convert>
Json arrayOf(const List& list, Convert convert) {
  Json all = Json::array();
  for (const auto& item : list) all.push(convert(item));
  return all;
}

Json momentJson(const plan::Moment& moment) {
  return Json::array(
      {Json(moment.lane.rank), Json(moment.lane.lane), Json(moment.step), Json(moment.execution)});
}

Json leafJson(const plan::Symbols::Leaf& leaf) {
  return Json::array({Json(leaf.rank), Json(leaf.chunk), Json(leaf.execution)});
}

Json findingJson(const plan::Finding& finding) {
  Json json = Json::object();
  json.set("kind", Json(nameOf(finding.kind))).set("message", Json(finding.message));
  json.set("rank", Json(finding.lane.rank)).set("lane", Json(finding.lane.lane));
  json.set("step", Json(finding.step));
  return json.set("trace",
                  arrayOf(finding.trace, [](const std::string& line) { return Json(line); }));
}

/// With all that the finding says as data.
Json wholeFindingJson(const plan::Finding& finding) {
  Json json = findingJson(finding);
  json.set("execution", Json(finding.execution));
  if (finding.place) {
    json.set("place", Json::array({Json(nameOf(finding.place->buffer)), Json(finding.place->index),
                                   Json(finding.place->rank)}));
  }
  json.set("others", arrayOf(finding.others, momentJson));
  json.set("words", arrayOf(finding.words, [](const std::string& word) { return Json(word); }));
  json.set("lacking", arrayOf(finding.lacking, leafJson));
  json.set("surplus", arrayOf(finding.surplus, leafJson));
  return json.set("run", arrayOf(finding.run, momentJson));
}

template <class Convert>
Json reportJson(const plan::Report& report, Convert finding) {
  Json properties = Json::object();
  properties.set("in_place_safe", Json(report.properties.inPlaceSafe));
  properties.set("rank_order", Json(report.properties.rankOrder));
  properties.set("flat", Json(report.properties.flat));
  Json json = Json::object();
  json.set("findings", arrayOf(report.findings, finding));
  return json.set("properties", std::move(properties)).set("text", Json(report.toText()));
}

Json originJson(const plan::mscclpp::Origin& origin) {
  return Json::array({Json(origin.op), Json(origin.inner)});
}

Json refusalJson(const plan::mscclpp::Refusal& refusal) {
  Json json = Json::object();
  json.set("why", Json(refusal.why()));
  json.set("wrong", Json(refusal.kind() == ErrorKind::InvalidArgument));
  json.set("rank", Json(refusal.at().rank)).set("lane", Json(refusal.at().lane));
  json.set("origin", originJson(refusal.origin()));
  return Json(Json::object()).set("refused", std::move(json));
}

}  // namespace

Json verified(const Json& request) {
  return reportJson(plan::verify(plan::fromJson(request.at("plan"))), findingJson);
}

Json lowered(const Json& request) {
  return toJson(plan::mscclpp::prove(plan::mscclpp::parse(request.at("program"))).lowered.plan);
}

Json loweredUnproved(const Json& request) try {
  const auto lowered = plan::mscclpp::lowerUnproved(plan::mscclpp::parse(request.at("program")));
  return Json(Json::object()).set("plan", toJson(lowered.plan));
} catch (const plan::mscclpp::Refusal& refusal) {
  return refusalJson(refusal);
}

Json proved(const Json& request) try {
  const Json* iterations = request.find("iterations");
  const auto [lowered, report] =
      plan::mscclpp::prove(plan::mscclpp::parse(request.at("program")),
                           iterations ? iterations->asInt32() : plan::mscclpp::kIterations);
  Json origins = arrayOf(lowered.origins, [](const auto& lanes) {
    return arrayOf(lanes, [](const auto& steps) { return arrayOf(steps, originJson); });
  });
  Json json = Json::object();
  json.set("plan", toJson(lowered.plan)).set("origins", std::move(origins));
  json.set("factor", Json(lowered.factor));
  return json.set("report", reportJson(report, wholeFindingJson));
} catch (const plan::mscclpp::Refusal& refusal) {
  return refusalJson(refusal);
}

}  // namespace ctran
