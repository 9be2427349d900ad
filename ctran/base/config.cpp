#include "ctran/base/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "ctran/base/config_sources.h"
#include "ctran/base/error.h"

namespace ctran {

namespace {

// Zero before any constructor runs, so variables of all files can link themselves in, in any order.
constinit const ConfigVariable* gHead = nullptr;

template <class T>
bool parseNumber(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parseBytes(std::string_view text, uint64_t& value) {
  constexpr std::string_view kSuffixes = "KMG";
  int shift = 0;
  if (!text.empty()) {
    const size_t suffix = kSuffixes.find(text.back());
    if (suffix != std::string_view::npos) {
      shift = 10 * (static_cast<int>(suffix) + 1);
      text.remove_suffix(1);
    }
  }
  if (!parseNumber(text, value) || value > (UINT64_MAX >> shift)) return false;
  value <<= shift;
  return true;
}

std::string printBytes(uint64_t value) {
  size_t suffix = 0;
  while (suffix < 3 && value != 0 && value % 1024 == 0) {
    value /= 1024;
    ++suffix;
  }
  std::string text = std::to_string(value);
  if (suffix > 0) text += "KMG"[suffix - 1];
  return text;
}

constexpr double kMostSeconds = 1e9;  // what every clock can add

std::string printSeconds(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

std::vector<std::string_view> split(std::string_view choices) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t bar = choices.find('|');
    words.push_back(choices.substr(0, bar));
    if (bar == std::string_view::npos) return words;
    choices.remove_prefix(bar + 1);
  }
}

}  // namespace

ConfigVariable::ConfigVariable(const char* name, const char* doc, Change change)
    : name_(name), doc_(doc), change_(change), next_(gHead) {
  gHead = this;
}

ConfigVariable::Source ConfigVariable::source() const { return configText(name_).second; }

std::string ConfigVariable::raw() const { return configText(name_).first; }

void ConfigVariable::reject(const std::string& text, const std::string& expected) const {
  throw Error(ErrorKind::InvalidArgument, std::string(name_) + "='" + text + "' is not " + expected,
              {}, {}, doc_);
}

std::vector<const ConfigVariable*> allConfig() {
  std::vector<const ConfigVariable*> all;
  for (const ConfigVariable* v = gHead; v != nullptr; v = v->next_) all.push_back(v);
  std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->name() < b->name(); });
  // A header's variable exists once per library that hides its symbols.
  const auto same = [](auto* a, auto* b) { return a->name() == b->name(); };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  return all;
}

const ConfigVariable* findConfig(std::string_view name) {
  for (const ConfigVariable* v : allConfig()) {
    if (v->name() == name) return v;
  }
  return nullptr;
}

ConfigBool::ConfigBool(const char* name, bool value, const char* doc, Change change)
    : ConfigVariable(name, doc, change), default_(value) {}

bool ConfigBool::get() const {
  const std::string text = raw();
  return text.empty() ? default_ : parse(text);
}

bool ConfigBool::parse(const std::string& given) const {
  std::string text = given;
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const char* yes : {"1", "true", "yes", "on", "y"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"0", "false", "no", "off", "n"}) {
    if (text == no) return false;
  }
  reject(given, "a truth value (1 0 true false yes no on off)");
}

std::string ConfigBool::type() const { return "bool"; }
std::string ConfigBool::defaultText() const { return default_ ? "1" : "0"; }
std::string ConfigBool::valueText() const { return get() ? "1" : "0"; }

ConfigInt::ConfigInt(const char* name, int64_t value, const char* doc, int64_t min, int64_t max)
    : ConfigVariable(name, doc), default_(value), min_(min), max_(max) {}

int64_t ConfigInt::get() const {
  const std::string text = raw();
  return text.empty() ? default_ : parse(text);
}

int64_t ConfigInt::parse(const std::string& text) const {
  int64_t value = 0;
  if (parseNumber(text, value) && value >= min_ && value <= max_) return value;
  std::string expected = "an integer of at least " + std::to_string(min_);
  if (max_ != INT64_MAX) expected += " and at most " + std::to_string(max_);
  reject(text, expected);
}

std::string ConfigInt::type() const {
  if (max_ == INT64_MAX) return "int, at least " + std::to_string(min_);
  return "int, " + std::to_string(min_) + " to " + std::to_string(max_);
}
std::string ConfigInt::defaultText() const { return std::to_string(default_); }
std::string ConfigInt::valueText() const { return std::to_string(get()); }

ConfigBytes::ConfigBytes(const char* name, size_t value, const char* doc)
    : ConfigVariable(name, doc), default_(value) {}

size_t ConfigBytes::get() const {
  const std::string text = raw();
  return text.empty() ? default_ : parse(text);
}

size_t ConfigBytes::parse(const std::string& text) const {
  uint64_t value = 0;
  if (!parseBytes(text, value)) reject(text, "a number of bytes (such as 4096, 64K, 4M or 1G)");
  return value;
}

std::string ConfigBytes::type() const { return "bytes"; }
std::string ConfigBytes::defaultText() const { return printBytes(default_); }
std::string ConfigBytes::valueText() const { return printBytes(get()); }

ConfigString::ConfigString(const char* name, const char* value, const char* doc, const char* kind)
    : ConfigVariable(name, doc), default_(value), kind_(kind) {}

std::string ConfigString::get() const {
  std::string text = raw();
  return text.empty() ? std::string(default_) : text;
}

std::string ConfigString::type() const { return kind_; }
std::string ConfigString::defaultText() const { return default_; }
std::string ConfigString::valueText() const { return get(); }

ConfigChoice::ConfigChoice(const char* name, const char* choices, const char* value,
                           const char* doc)
    : ConfigVariable(name, doc), choices_(choices), default_(value) {}

size_t ConfigChoice::index() const {
  const std::string text = raw();
  return parse(text.empty() ? std::string(default_) : text);
}

size_t ConfigChoice::parse(const std::string& text) const {
  const std::vector<std::string_view> words = split(choices_);
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) reject(text, std::string("one of ") + choices_);
  return found - words.begin();
}

std::string_view ConfigChoice::get() const { return split(choices_)[index()]; }
std::string ConfigChoice::type() const { return choices_; }
std::string ConfigChoice::defaultText() const { return default_; }
std::string ConfigChoice::valueText() const { return std::string(get()); }

ConfigSeconds::ConfigSeconds(const char* name, double value, const char* doc, Change change)
    : ConfigVariable(name, doc, change), default_(value) {}

double ConfigSeconds::seconds() const {
  const std::string text = raw();
  return text.empty() ? default_ : parse(text);
}

double ConfigSeconds::parse(const std::string& text) const {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value >= 0 && value <= kMostSeconds)) {
    reject(text, "a number of seconds");
  }
  return value;
}

std::chrono::milliseconds ConfigSeconds::get() const {
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds() * 1000)));
}

std::string ConfigSeconds::defaultText() const { return printSeconds(default_); }
std::string ConfigSeconds::valueText() const { return printSeconds(seconds()); }

}  // namespace ctran
