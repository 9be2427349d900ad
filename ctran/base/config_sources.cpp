// The sources of variables' values: setLive, the environment, the file.
#include "ctran/base/config_sources.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/text.h"

namespace ctran {
namespace {

using Source = ConfigVariable::Source;
using Values = std::map<std::string, std::string, std::less<>>;

constexpr const char* kFileVariable = "TORCHCOMM_CONFIG";

const ConfigString kFile{
    kFileVariable, "",
    "A file of lines NAME=VALUE, for variables that the environment does not set; # begins a "
    "comment. It cannot name another file.",
    "path"};

ConfigFile readFile(const std::string& path) {
  ConfigFile file;
  file.path = path;
  std::ifstream in(path);
  in.peek();  // a folder can be opened, but not read
  if (in.fail() && !in.eof()) {
    file.error = "cannot be read: " + std::string(std::strerror(errno));
    return file;
  }
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string_view text = trimmed(std::string_view(line).substr(0, line.find('#')));
    if (text.empty()) continue;
    const size_t equals = text.find('=');
    const std::string_view name = trimmed(text.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      if (file.error.empty()) file.error = "has no NAME=VALUE in line " + std::to_string(number);
      continue;
    }
    file.values[std::string(name)] = trimmed(text.substr(equals + 1));
  }
  return file;
}

// Never destroyed: threads read variables until the process ends.
struct SourcesState {
  std::mutex mutex;
  ConfigFile file;
  Values live;
  std::atomic<bool> hasWarned{false};
};

SourcesState& sourcesState() {
  static SourcesState& only = *new SourcesState;
  return only;
}

// Zero before any constructor runs, as the list of variables.
struct Observer {
  const ConfigVariable* variable;
  void (*changed)();
  const Observer* next;
};
constinit const Observer* gObservers = nullptr;

/// Called with the lock. Reads the file again when the variable names another one.
const ConfigFile& currentFile(SourcesState& s) {
  const char* path = std::getenv(kFileVariable);
  const std::string named = path == nullptr ? "" : path;
  if (s.file.path != named) s.file = named.empty() ? ConfigFile{} : readFile(named);
  return s.file;
}

std::string textIn(const Values& values, std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? std::string() : found->second;
}

/// How many letters have to be inserted, left out or replaced.
size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// The declared name that is nearest, if it differs in at most a third of the letters behind the
/// prefix, or goes on where `name` ends.
std::string nearest(std::string_view name, size_t prefix) {
  const size_t most = (name.size() - prefix) / 3;
  std::string best;
  size_t least = most + 1;
  for (const ConfigVariable* variable : allConfig()) {
    const size_t away = editDistance(name, variable->name());
    if (away >= least &&
        !(best.empty() && name.size() > prefix + 3 && variable->name().starts_with(name))) {
      continue;
    }
    least = std::min(least, away);
    best = variable->name();
  }
  return best;
}

bool startsWithAny(std::string_view name, const std::vector<std::string_view>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Throws for the first value that its variable does not take. The log's own are warned of by the
/// log, which goes on with the default.
void checkValues(const std::vector<std::string_view>& prefixes) {
  for (const ConfigVariable* variable : allConfig()) {
    const std::string name(variable->name());
    if (!startsWithAny(name, prefixes) || name.find("_LOG") != std::string::npos) continue;
    if (const std::string text = configText(name.c_str()).first; !text.empty()) {
      variable->check(text);
    }
  }
}

std::vector<std::string> namesInEnvironment() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace

std::pair<std::string, Source> configText(const char* name) {
  SourcesState& s = sourcesState();
  const std::lock_guard lock(s.mutex);
  if (std::string text = textIn(s.live, name); !text.empty()) return {text, Source::Live};
  const char* own = std::getenv(name);
  if (own != nullptr && *own != 0) return {own, Source::Environment};
  if (std::strcmp(name, kFileVariable) == 0) return {{}, Source::Default};
  if (std::string text = textIn(currentFile(s).values, name); !text.empty()) {
    return {text, Source::File};
  }
  return {{}, Source::Default};
}

ConfigFile configFile() {
  SourcesState& s = sourcesState();
  const std::lock_guard lock(s.mutex);
  return currentFile(s);
}

WhenLiveChanges::WhenLiveChanges(const ConfigVariable& variable, void (*changed)()) {
  gObservers = new Observer{&variable, changed, gObservers};  // for as long as the process lives
}

void setLive(std::string_view name, const std::string& value) {
  const ConfigVariable* variable = findConfig(name);
  if (variable == nullptr) {
    const std::string near = nearest(name, std::min(name.find('_') + 1, name.size()));
    const std::string meant = near.empty() ? "" : "; is " + near + " meant?";
    throw Error(ErrorKind::InvalidArgument, std::string(name) + " is no variable" + meant);
  }
  if (!variable->isLive()) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(name) + " is read when something is created: set it before the start");
  }
  variable->check(value);
  {
    SourcesState& s = sourcesState();
    const std::lock_guard lock(s.mutex);
    s.live[std::string(name)] = value;
  }
  for (const Observer* o = gObservers; o != nullptr; o = o->next) {
    // A header's variable exists once per library that hides its symbols.
    if (o->variable->name() == name) o->changed();
  }
}

std::vector<UnknownConfig> unknownConfig(const std::vector<std::string>& names,
                                         const std::vector<std::string_view>& prefixes) {
  std::vector<UnknownConfig> unknown;
  const std::vector<const ConfigVariable*> all = allConfig();
  for (const std::string& name : names) {
    size_t prefix = 0;
    for (const std::string_view p : prefixes) {
      if (name.starts_with(p)) prefix = std::max(prefix, p.size());
    }
    if (prefix == 0) continue;
    const bool known = std::any_of(all.begin(), all.end(), [&](const ConfigVariable* variable) {
      const std::string_view declared = variable->name();
      const size_t any = declared.find('<');
      return any == std::string_view::npos ? declared == name
                                           : name.starts_with(declared.substr(0, any));
    });
    if (!known) unknown.push_back({name, nearest(name, prefix)});
  }
  return unknown;
}

void checkConfig(const std::vector<std::string_view>& prefixes) {
  const ConfigFile file = configFile();
  if (!file.error.empty()) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(kFileVariable) + ": the file '" + file.path + "' " + file.error, {}, {},
                std::string(kFile.doc()));
  }
  std::vector<std::string> named;
  for (const auto& [name, value] : file.values) named.push_back(name);
  checkValues(prefixes);
  if (sourcesState().hasWarned.exchange(true)) return;
  const auto warn = [](const UnknownConfig& unknown, const char* where) {
    const std::string meant = unknown.near.empty() ? "" : "; is " + unknown.near + " meant?";
    log(LogComponent::Config, LogLevel::Warn, "%s%s means nothing%s", unknown.name.c_str(), where,
        meant.c_str());
  };
  for (const auto& unknown : unknownConfig(namesInEnvironment(), prefixes)) warn(unknown, "");
  const std::string where = " in " + file.path;
  for (const auto& unknown : unknownConfig(named, prefixes)) warn(unknown, where.c_str());
  for (const std::string& name : named) {
    if (!name.starts_with("CTRAN_") && !name.starts_with("TORCHCOMM") &&
        findConfig(name) == nullptr) {
      warn({name, {}}, where.c_str());
    }
  }
}

}  // namespace ctran
