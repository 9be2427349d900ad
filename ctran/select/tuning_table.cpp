#include "ctran/select/tuning_table.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <tuple>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/sha256.h"
#include "ctran/topology/host.h"

namespace ctran {
namespace {

const ConfigString kTuningDir{"CTRAN_TUNING_DIR", "",
                              "Where `torchcomms tune` keeps what it measured, and communicators "
                              "look for it. Default: torchcomms in XDG_CACHE_HOME or ~/.cache."};

std::filesystem::path directory() {
  if (const std::string named = kTuningDir.get(); !named.empty()) return named;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return std::filesystem::path(cache) / "torchcomms";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/tmp" : home) / ".cache" / "torchcomms";
}

CollectiveKind kindNamed(const std::string& name) {
  if (const auto kind = collectiveKindNamed(name)) return *kind;
  throw Error(ErrorKind::InvalidArgument, "no collective is named '" + name + "'");
}

}  // namespace

const TuningTable::Entry* TuningTable::find(CollectiveKind kind, size_t bytes) const {
  const Entry* nearest = nullptr;
  double least = 4;
  for (const Entry& entry : entries) {
    if (entry.kind != kind) continue;
    const auto a = static_cast<double>(std::max<size_t>(entry.bytes, 1));
    const auto b = static_cast<double>(std::max<size_t>(bytes, 1));
    const double ratio = std::max(a / b, b / a);
    if (ratio >= least) continue;
    least = ratio;
    nearest = &entry;
  }
  return nearest;
}

uint64_t TuningTable::hash() const {
  if (entries.empty()) return 0;
  const std::string text = toJson().print();
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash | 1;
}

Json TuningTable::toJson() const {
  Json all = Json::array();
  for (const Entry& entry : entries) {
    Json micros = Json::object();
    for (const auto& [name, us] : entry.micros) micros.set(name, Json(us));
    Json one = Json::object();
    one.set("collective", Json(nameOf(entry.kind)));
    one.set("bytes", Json(static_cast<int64_t>(entry.bytes))).set("us", std::move(micros));
    all.push(std::move(one));
  }
  Json json = Json::object();
  json.set("format", Json(1)).set("machine", Json(machine)).set("ranks", Json(ranks));
  if (!shape.empty()) json.set("hosts", Json(shape));
  json.set("measured", std::move(all));
  return json;
}

TuningTable TuningTable::fromJson(const Json& json) {
  TuningTable table;
  if (json.at("format").asInt() != 1) {
    throw Error(ErrorKind::InvalidArgument, "the table is of another version");
  }
  table.machine = json.at("machine").asString();
  table.ranks = static_cast<int>(json.at("ranks").asInt());
  if (const Json* shape = json.find("hosts")) table.shape = shape->asString();
  for (const Json& one : json.at("measured").items()) {
    Entry entry{kindNamed(one.at("collective").asString()),
                static_cast<size_t>(std::max<int64_t>(one.at("bytes").asInt(), 0)),
                {}};
    for (const auto& [name, us] : one.at("us").members()) {
      entry.micros.emplace_back(name, us.asDouble());
    }
    std::sort(entry.micros.begin(), entry.micros.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second, a.first) < std::tie(b.second, b.first);
    });
    table.entries.push_back(std::move(entry));
  }
  return table;
}

std::string TuningTable::pathFor(int ranks, const std::string& machine, const std::string& shape) {
  const std::string key = machine.empty() ? thisHost().key() : machine;
  const std::string form = shape.empty() ? std::to_string(ranks) : shape;
  return directory() / ("tuning-" + key + "-" + form + ".json");
}

TuningTable TuningTable::load(int ranks, const std::string& machine, const std::string& shape) {
  const std::string path = pathFor(ranks, machine, shape);
  std::ifstream file(path);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  try {
    TuningTable table = fromJson(Json::parse(text.str(), path));
    const std::string& key = machine.empty() ? thisHost().key() : machine;
    if (table.machine == key && table.ranks == ranks && table.shape == shape) return table;
  } catch (const Error& error) {
    log(LogComponent::Select, LogLevel::Warn, "ignored the tuning table %s: %s", path.c_str(),
        error.what());
  }
  return {};
}

void TuningTable::save() const {
  const std::filesystem::path path = pathFor(ranks, machine, shape);
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  const std::filesystem::path fresh = path.string() + "." + std::to_string(::getpid());
  std::ofstream file(fresh);
  file << toJson().print(100) << "\n";
  file.close();
  if (file) std::filesystem::rename(fresh, path, failed);
  if (!file || failed) {
    throw Error(ErrorKind::System, "cannot write the tuning table " + path.string(), {}, {},
                "name a directory that can be written in CTRAN_TUNING_DIR");
  }
}

}  // namespace ctran
