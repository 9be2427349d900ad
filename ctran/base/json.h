#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ctran {

/// A JSON value (RFC 8259) without loss: members keep their order, numbers their digits. It has
/// what the engine needs for its small JSON texts, and no more.
class Json {
 public:
  enum class Type { Null, Bool, Number, String, Array, Object };
  using Members = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  Json(bool value) : type_(Type::Bool), text_(value ? "true" : "false") {}  // NOLINT: a value
  Json(int64_t value) : type_(Type::Number), text_(std::to_string(value)) {}
  Json(int value) : Json(static_cast<int64_t>(value)) {}
  Json(double value);
  Json(std::string value) : type_(Type::String), text_(std::move(value)) {}
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  static Json array(std::vector<Json> items = {});
  static Json object(Members members = {});

  /// Throws Error(InvalidArgument) that says where the text is wrong. `what` is the name of the
  /// text.
  static Json parse(std::string_view text, const std::string& what = "JSON");

  /// Prints on one line or, with `width`, on several where a value is wider than that.
  std::string print(size_t width = 0) const;

  Type type() const { return type_; }
  bool operator==(const Json&) const = default;

  /// Return the value as that type, or throw Error(InvalidArgument).
  bool asBool() const;
  int64_t asInt() const;
  int asInt32() const;
  double asDouble() const;
  const std::string& asString() const;
  const std::vector<Json>& items() const;
  const Members& members() const;

  /// Return a member of an object. If there is none, `find` returns null and `at` throws
  /// Error(InvalidArgument).
  const Json* find(std::string_view name) const;
  const Json& at(std::string_view name) const;
  /// Return a member as that type, or `otherwise` if there is none.
  int intOr(std::string_view name, int otherwise) const;
  bool boolOr(std::string_view name, bool otherwise) const;

  Json& set(std::string name, Json value);
  void push(Json value) { items_.push_back(std::move(value)); }

 private:
  friend class JsonParser;
  [[noreturn]] void rejectAs(const char* wanted) const;
  void print(std::string& out, size_t width, size_t indent) const;

  Type type_ = Type::Null;
  std::string text_;  // decoded for a string; the digits of a number; for a bool its word
  std::vector<Json> items_;
  Members members_;
};

}  // namespace ctran
