#include "ctran/capi/trace.h"

#include <cstdlib>

#include "ctran/base/error.h"
#include "ctran/base/json.h"
#include "ctran/capi/call.h"
#include "ctran/collective/signature.h"
#include "ctran/trace/reader.h"
#include "ctran/trace/settings.h"

namespace ctran {
namespace {

constexpr const char* kErrorKinds[] = {"InvalidArgument", "Timeout",     "PeerLost", "Mismatch",
                                       "Aborted",         "Unsupported", "System"};

constexpr const char* kTransports[] = {"tcp", "rdma", "shm"};

std::string errorKind(int kind) {
  constexpr int kCount = sizeof kErrorKinds / sizeof *kErrorKinds;
  return kind >= 0 && kind < kCount ? kErrorKinds[kind] : "?";
}

Json toJson(const RankRecording::Operation& op) {
  Json json = Json::object();
  json.set("number", Json(static_cast<int64_t>(op.position)));
  json.set("message", Json(op.isMessage));
  const RecordedCall call = recordedCall(op.what, op.count);
  json.set("kind", Json(call.kind)).set("call", Json(call.text)).set("type", Json(call.type));
  json.set("root", Json(call.root)).set("count", Json(static_cast<int64_t>(op.count)));
  json.set("bytes", Json(static_cast<int64_t>(op.bytes)));
  json.set("tag", Json(static_cast<int64_t>(op.tag)));
  json.set("received", Json(static_cast<int64_t>(op.received)));
  json.set("prepared", Json(op.prepared));
  json.set("algorithm", Json(op.algorithm)).set("why", Json(op.why));
  json.set("called", Json(op.called)).set("started", Json(op.started));
  json.set("first", Json(op.first)).set("ended", Json(op.ended));
  json.set("waits_for", op.waits ? Json(op.waitsFor) : Json());
  json.set("waits_since", Json(op.waitsSince));
  json.set("waited", Json(op.waited)).set("longest_wait", Json(op.longestWait));
  json.set("longest_for", op.longestWait > 0 ? Json(op.longestFor) : Json());
  json.set("error", op.failedWith < 0 ? Json() : Json(errorKind(op.failedWith)));
  return json;
}

Json toJson(const RankRecording& rank) {
  Json json = Json::object();
  json.set("rank", Json(rank.rank)).set("size", Json(rank.size));
  json.set("name", Json(rank.name)).set("host", Json(rank.host));
  json.set("pid", Json(rank.pid));
  json.set("process_start", Json(static_cast<int64_t>(rank.processStart)));
  json.set("left", Json(rank.hasLeft));
  json.set("realtime_offset", Json(rank.realtimeOffset)).set("timeout", Json(rank.timeout));
  json.set("collectives", Json(static_cast<int64_t>(rank.collectives)));
  json.set("messages", Json(static_cast<int64_t>(rank.messages)));
  json.set("queued", Json(static_cast<int64_t>(rank.queued)));
  json.set("off", Json(rank.isOff)).set("takes_settings", Json(rank.takesSettings));
  json.set("error", rank.failedWith < 0 ? Json() : Json(errorKind(rank.failedWith)));
  json.set("failure", Json(rank.failure));
  Json blames = Json::array();
  for (const int blamed : rank.blames) blames.push(Json(blamed));
  json.set("blames", std::move(blames));
  Json links = Json::array();
  for (const auto& link : rank.links) {
    Json one = Json::object();
    one.set("peer", Json(link.peer));
    one.set("transport", Json(kTransports[static_cast<size_t>(link.transport)]));
    one.set("sent", Json(static_cast<int64_t>(link.sent)));
    one.set("arrived", Json(static_cast<int64_t>(link.arrived))).set("busy", Json(link.busy));
    one.set("received", Json(static_cast<int64_t>(link.received)));
    one.set("copied", Json(static_cast<int64_t>(link.copied)));
    links.push(std::move(one));
  }
  json.set("since", Json(rank.since)).set("links", std::move(links));
  Json operations = Json::array();
  for (const auto& op : rank.operations) operations.push(toJson(op));
  json.set("operations", std::move(operations));
  Json replays = Json::array();
  for (const auto& op : rank.replays) replays.push(toJson(op));
  json.set("replayed", Json(static_cast<int64_t>(rank.replayed)));
  json.set("tells_replays", Json(rank.tellsReplays)).set("replays", std::move(replays));
  return json;
}

Json answerTrace(const Json& request) {
  const std::string& what = request.at("do").asString();
  const int fd = static_cast<int>(request.at("fd").asInt());
  if (what == "ask") {
    const uint64_t number =
        askSetting(fd, request.at("name").asString(), request.at("value").asString());
    return static_cast<int64_t>(number);
  }
  if (what == "answers") {
    Json answers = Json::array();
    for (const auto& one : readAnswers(fd, static_cast<uint64_t>(request.at("asked").asInt()))) {
      Json json = Json::object();
      json.set("rank", Json(one.rank)).set("answer", one.hasAnswered ? Json(one.answer) : Json());
      answers.push(std::move(json));
    }
    return answers;
  }
  if (what != "read") {
    throw Error(ErrorKind::InvalidArgument, "there is nothing called '" + what + "' to do");
  }
  const auto recording = readRecording(fd);
  if (!recording) return {};
  Json json = Json::object();
  json.set("now", Json(nowNanos()));
  json.set("group", Json(std::to_string(recording->group)));
  Json ranks = Json::array();
  for (const auto& rank : recording->ranks) ranks.push(toJson(rank));
  json.set("ranks", std::move(ranks));
  return json;
}

}  // namespace
}  // namespace ctran

char* ctran_trace_call(const char* request) { return ctran::answered(request, ctran::answerTrace); }

void ctran_trace_free(char* text) { std::free(text); }
