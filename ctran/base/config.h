#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ctran {

/// A configuration variable: declared once, as data, next to the code that reads it:
///
///     inline const ConfigInt kSpinMicros{"CTRAN_SPIN_MICROS", 50, "Spin this long before
///     sleeping."};
///     ... kSpinMicros.get() ...
///
/// Every variable that is declared is listed by `allConfig()`, from which the documentation and the
/// command-line listing are made. Declare them at namespace scope only, with literals: the strings
/// are kept by reference.
///
/// Its value is what setLive has set in the running process, else the environment's, else that of
/// the file that TORCHCOMM_CONFIG names, else the default. Hints come before all of these; the code
/// that reads hints does that.
class ConfigVariable {
 public:
  /// When a value may change: at the start only, or by `setLive` while the program runs.
  enum class Change { AtStart, Live };
  enum class Source { Default, File, Environment, Live };

  ConfigVariable(const ConfigVariable&) = delete;
  ConfigVariable& operator=(const ConfigVariable&) = delete;
  virtual ~ConfigVariable() = default;

  std::string_view name() const { return name_; }
  std::string_view doc() const { return doc_; }
  virtual std::string type() const = 0;  ///< "int", "bytes", "error|warn|info|debug" ...
  virtual std::string defaultText() const = 0;
  /// Returns the value in force, as `get()` sees it. Throws Error(InvalidArgument).
  virtual std::string valueText() const = 0;
  /// Throws Error(InvalidArgument) unless `text` can be a value.
  virtual void check(const std::string& text) const = 0;
  bool isLive() const { return change_ == Change::Live; }
  Source source() const;  ///< where the value comes from; an empty value counts as none
  bool isSet() const { return source() != Source::Default; }

 protected:
  ConfigVariable(const char* name, const char* doc, Change change = Change::AtStart);
  std::string raw() const;
  /// Throws the error that this variable does not take `text`.
  [[noreturn]] void reject(const std::string& text, const std::string& expected) const;

 private:
  friend std::vector<const ConfigVariable*> allConfig();
  const char* name_;
  const char* doc_;
  Change change_;
  const ConfigVariable* next_;  ///< list of all variables, built before main()
};

/// Returns all variables that are linked in, by name.
std::vector<const ConfigVariable*> allConfig();
/// Returns null if there is no variable of that name.
const ConfigVariable* findConfig(std::string_view name);

/// Sets a variable of this process while it runs, for everything that reads it from now on. Throws
/// Error(InvalidArgument) unless the variable exists, is live, and takes the value.
void setLive(std::string_view name, const std::string& value);
/// setLive calls `changed` after each change of a live variable. To be declared at namespace scope
/// only.
struct WhenLiveChanges {
  WhenLiveChanges(const ConfigVariable& variable, void (*changed)());
};

/// The prefixes of our variables' names.
inline const std::vector<std::string_view> kConfigPrefixes{"CTRAN_", "TORCHCOMM_", "TORCHCOMMS_"};

/// An unknown name, and the declared name that may be meant; empty if none is near.
struct UnknownConfig {
  std::string name, near;
};
/// Returns those of `names` that begin with one of `prefixes` ("CTRAN_") and are unknown. A
/// declared name that ends with <...> stands for all names that begin as it does.
std::vector<UnknownConfig> unknownConfig(const std::vector<std::string>& names,
                                         const std::vector<std::string_view>& prefixes);
/// Throws Error(InvalidArgument) if TORCHCOMM_CONFIG names a file that cannot be used, or if a
/// variable with one of `prefixes` has a value that it does not take, whether that is read later or
/// not. Warns, once per process, of unknown names in the environment and in the file.
void checkConfig(const std::vector<std::string_view>& prefixes);

/// The types below read the environment anew at each `get()`, and throw Error(InvalidArgument) for
/// a value that they cannot read. Call `get()` when something is created, not per operation.

class ConfigBool : public ConfigVariable {
 public:
  ConfigBool(const char* name, bool value, const char* doc, Change change = Change::AtStart);
  bool get() const;  ///< 1 0 true false yes no on off
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  bool parse(const std::string& text) const;
  bool default_;
};

class ConfigInt : public ConfigVariable {
 public:
  ConfigInt(const char* name, int64_t value, const char* doc, int64_t min = 0,
            int64_t max = INT64_MAX);
  int64_t get() const;
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  int64_t parse(const std::string& text) const;
  int64_t default_;
  int64_t min_;
  int64_t max_;
};

/// A number of bytes: "4096", "64K", "4M", "1G", in powers of 1024.
class ConfigBytes : public ConfigVariable {
 public:
  ConfigBytes(const char* name, size_t value, const char* doc);
  size_t get() const;
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  size_t parse(const std::string& text) const;
  size_t default_;
};

/// Any text. `kind` is what the documentation calls its type.
class ConfigString : public ConfigVariable {
 public:
  ConfigString(const char* name, const char* value, const char* doc, const char* kind = "string");
  std::string get() const;
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  static std::string parse(const std::string& text) { return text; }
  const char* default_;
  const char* kind_;
};

/// A duration, written in seconds: "30", "0.5".
class ConfigSeconds : public ConfigVariable {
 public:
  ConfigSeconds(const char* name, double value, const char* doc, Change change = Change::AtStart);
  std::chrono::milliseconds get() const;  ///< rounded up
  std::string type() const override { return "seconds"; }
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  double seconds() const;
  double parse(const std::string& text) const;

  double default_;
};

/// One of the listed words.
class ConfigChoice : public ConfigVariable {
 public:
  /// `choices` are separated by '|'; `value` is one of them.
  ConfigChoice(const char* name, const char* choices, const char* value, const char* doc);
  std::string_view get() const;
  size_t index() const;  ///< the position of the value in the list
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  size_t parse(const std::string& text) const;
  const char* choices_;
  const char* default_;
};

}  // namespace ctran
