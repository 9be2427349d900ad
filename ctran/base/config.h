#pragma once

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
class ConfigVariable {
 public:
  ConfigVariable(const ConfigVariable&) = delete;
  ConfigVariable& operator=(const ConfigVariable&) = delete;
  virtual ~ConfigVariable() = default;

  std::string_view name() const { return name_; }
  std::string_view doc() const { return doc_; }
  virtual std::string type() const = 0;  ///< "int", "bytes", "error|warn|info|debug" ...
  virtual std::string defaultText() const = 0;
  /// The value in force, as `get()` sees it. Throws Error(InvalidArgument).
  virtual std::string valueText() const = 0;
  bool isSet() const;  ///< whether the environment has a value; an empty one counts as none

 protected:
  ConfigVariable(const char* name, const char* doc);
  std::string raw() const;
  [[noreturn]] void reject(const std::string& expected) const;

 private:
  friend std::vector<const ConfigVariable*> allConfig();
  const char* name_;
  const char* doc_;
  const ConfigVariable* next_;  ///< list of all variables, built before main()
};

/// All variables that are linked in, by name.
std::vector<const ConfigVariable*> allConfig();

/// The forms below read the environment anew at each `get()`, and throw Error(InvalidArgument) for
/// a value they cannot read. Read them when something is created, not per operation.

class ConfigBool : public ConfigVariable {
 public:
  ConfigBool(const char* name, bool value, const char* doc);
  bool get() const;  ///< 1 0 true false yes no on off
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;

 private:
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

 private:
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

 private:
  size_t default_;
};

class ConfigString : public ConfigVariable {
 public:
  ConfigString(const char* name, const char* value, const char* doc);
  std::string get() const;
  std::string type() const override;
  std::string defaultText() const override;
  std::string valueText() const override;

 private:
  const char* default_;
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

 private:
  const char* choices_;
  const char* default_;
};

}  // namespace ctran
