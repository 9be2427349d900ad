// Plans as JSON. Members that have their default are left out; unknown ones are an error.
//
//   {"plan": 1, "name": "...", "collective": "all_reduce", "ranks": 2, "root": 0, "chunks": 2,
//    "scratch": 1, "depth": 1, "in_place": false,
//    "channels": [{"from": [rank, lane], "to": [rank, lane], "credits": 0}, ...],
//    "programs": [[[step, ...], ...lanes], ...ranks]}
//   step: {"wait": [[channel, count], ...], "to": [place, ...], "from": [place, ...],
//          "part": 0, "count": 1, "packet": false, "store": false, "signal": [channel, ...]}
//   place: [buffer, index] of the rank itself, or [buffer, index, rank]
#include <algorithm>
#include <initializer_list>

#include "ctran/base/error.h"
#include "ctran/plan/plan.h"

namespace ctran::plan {
namespace {

constexpr int kVersion = 1;

Json placeJson(const Place& place, int rank) {
  Json json = Json::array({Json(nameOf(place.buffer)), Json(place.index)});
  if (place.rank != rank) json.push(Json(place.rank));
  return json;
}

Json laneJson(const LaneId& id) { return Json::array({Json(id.rank), Json(id.lane)}); }

Json stepJson(const Step& step, int rank) {
  Json json = Json::object();
  const auto list = [](const auto& items, auto convert) {
    Json all = Json::array();
    for (const auto& item : items) all.push(convert(item));
    return all;
  };
  const auto place = [rank](const Place& p) { return placeJson(p, rank); };
  if (!step.waits.empty()) {
    json.set("wait", list(step.waits, [](const Wait& wait) {
               return Json::array({Json(wait.channel), Json(wait.count)});
             }));
  }
  if (step.moves()) {
    json.set("to", list(step.to, place)).set("from", list(step.from, place));
    if (step.part != 0) json.set("part", Json(step.part));
    if (step.count != 1) json.set("count", Json(step.count));
    if (step.packet) json.set("packet", Json(true));
    if (step.store) json.set("store", Json(true));
  }
  if (!step.signals.empty()) {
    json.set("signal", list(step.signals, [](int channel) { return Json(channel); }));
  }
  return json;
}

void expectMembers(const Json& json, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : json.members()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error(ErrorKind::InvalidArgument, "a plan has no '" + name + "' here");
    }
  }
}

const std::vector<Json>& itemsOf(const Json& json, size_t least, size_t most) {
  if (json.items().size() < least || json.items().size() > most) {
    throw Error(ErrorKind::InvalidArgument, json.print() + " has the wrong length");
  }
  return json.items();
}

template <class Function>
void forEach(const Json& json, std::string_view name, Function function) {
  const Json* list = json.find(name);
  if (list == nullptr) return;
  for (const Json& item : list->items()) function(item);
}

Buffer bufferNamed(const std::string& name) {
  for (const Buffer buffer : {Buffer::Input, Buffer::Output, Buffer::Scratch}) {
    if (nameOf(buffer) == name) return buffer;
  }
  throw Error(ErrorKind::InvalidArgument, "'" + name + "' is not input, output or scratch");
}

Place placeOf(const Json& json, int rank) {
  const auto& items = itemsOf(json, 2, 3);
  return {items.size() > 2 ? items[2].asInt32() : rank, bufferNamed(items[0].asString()),
          items[1].asInt32()};
}

LaneId laneOf(const Json& json) {
  const auto& items = itemsOf(json, 2, 2);
  return {items[0].asInt32(), items[1].asInt32()};
}

Step stepOf(const Json& json, int rank) {
  expectMembers(json, {"wait", "to", "from", "part", "count", "packet", "store", "signal"});
  Step step;
  forEach(json, "wait", [&](const Json& wait) {
    const auto& items = itemsOf(wait, 2, 2);
    step.waits.push_back({items[0].asInt32(), items[1].asInt32()});
  });
  forEach(json, "to", [&](const Json& place) { step.to.push_back(placeOf(place, rank)); });
  forEach(json, "from", [&](const Json& place) { step.from.push_back(placeOf(place, rank)); });
  forEach(json, "signal", [&](const Json& channel) { step.signals.push_back(channel.asInt32()); });
  step.part = json.intOr("part", 0);
  step.count = json.intOr("count", 1);
  step.packet = json.boolOr("packet", false);
  step.store = json.boolOr("store", false);
  return step;
}

}  // namespace

Json toJson(const Plan& plan) {
  Json channels = Json::array();
  for (const Channel& channel : plan.channels) {
    Json json = Json::object();
    json.set("from", laneJson(channel.from)).set("to", laneJson(channel.to));
    if (channel.credits != 0) json.set("credits", Json(channel.credits));
    channels.push(std::move(json));
  }
  Json programs = Json::array();
  for (int r = 0; r < static_cast<int>(plan.programs.size()); ++r) {
    Json lanes = Json::array();
    for (const Lane& lane : plan.programs[r]) {
      Json steps = Json::array();
      for (const Step& step : lane) steps.push(stepJson(step, r));
      lanes.push(std::move(steps));
    }
    programs.push(std::move(lanes));
  }
  Json json = Json::object();
  json.set("plan", Json(kVersion)).set("name", Json(plan.name));
  json.set("collective", Json(nameOf(plan.kind))).set("ranks", Json(plan.ranks));
  if (plan.root != 0) json.set("root", Json(plan.root));
  json.set("chunks", Json(plan.chunks)).set("scratch", Json(plan.scratch));
  if (plan.depth != 1) json.set("depth", Json(plan.depth));
  if (plan.inPlace) json.set("in_place", Json(true));
  if (plan.open) {
    Json open = Json::object();
    open.set("inputs", Json(plan.open->inputs)).set("outputs", Json(plan.open->outputs));
    json.set("open", std::move(open));
  }
  json.set("channels", std::move(channels)).set("programs", std::move(programs));
  return json;
}

Plan fromJson(const Json& json) {
  expectMembers(json, {"plan", "name", "collective", "ranks", "root", "chunks", "scratch", "depth",
                       "in_place", "open", "channels", "programs"});
  if (json.at("plan").asInt32() != kVersion) {
    throw Error(ErrorKind::InvalidArgument,
                "this is a plan of version " + json.at("plan").print() + ", not 1");
  }
  Plan plan;
  plan.name = json.at("name").asString();
  const std::string& kind = json.at("collective").asString();
  const auto named = collectiveKindNamed(kind);
  if (!named) throw Error(ErrorKind::InvalidArgument, "'" + kind + "' is not a collective");
  plan.kind = *named;
  plan.ranks = json.at("ranks").asInt32();
  plan.root = json.intOr("root", 0);
  plan.chunks = json.at("chunks").asInt32();
  plan.scratch = json.intOr("scratch", 0);
  plan.depth = json.intOr("depth", 1);
  plan.inPlace = json.boolOr("in_place", false);
  if (const Json* open = json.find("open")) {
    expectMembers(*open, {"inputs", "outputs"});
    plan.open = {open->at("inputs").asInt32(), open->at("outputs").asInt32()};
  }
  forEach(json, "channels", [&](const Json& item) {
    expectMembers(item, {"from", "to", "credits"});
    plan.channels.push_back(
        {laneOf(item.at("from")), laneOf(item.at("to")), item.intOr("credits", 0)});
  });
  forEach(json, "programs", [&](const Json& lanes) {
    const int rank = static_cast<int>(plan.programs.size());
    plan.programs.emplace_back();
    for (const Json& steps : lanes.items()) {
      Lane& lane = plan.programs.back().emplace_back();
      for (const Json& step : steps.items()) lane.push_back(stepOf(step, rank));
    }
  });
  check(plan);
  return plan;
}

}  // namespace ctran::plan
