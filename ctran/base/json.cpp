#include "ctran/base/json.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "ctran/base/error.h"

namespace ctran {
namespace {

constexpr int kMaxDepth = 100;

void appendUtf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

void appendQuoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  Json document() {
    Json value = parseValue(0);
    skipSpace();
    if (at_ != text_.size()) reject("there is something after the end");
    return value;
  }

 private:
  [[noreturn]] void reject(const std::string& why) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    throw Error(ErrorKind::InvalidArgument, what_ + ", line " + std::to_string(line) + ", column " +
                                                std::to_string(column) + ": " + why);
  }

  void skipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  char peek() {
    skipSpace();
    if (at_ == text_.size()) reject("the text ends too early");
    return text_[at_];
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) reject(std::string("expected '") + c + "'");
  }
  bool takeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json parseValue(int depth) {
    if (depth > kMaxDepth) reject("nested too deeply");
    switch (peek()) {
      case '{':
        return parseObject(depth);
      case '[':
        return parseArray(depth);
      case '"':
        return Json(parseString());
      default:
        break;
    }
    if (takeWord("true")) return Json(true);
    if (takeWord("false")) return Json(false);
    if (takeWord("null")) return Json();
    return parseNumber();
  }

  Json parseObject(int depth) {
    Json value = Json::object();
    expect('{');
    if (take('}')) return value;
    do {
      if (peek() != '"') reject("expected a name in quotes");
      std::string name = parseString();
      if (value.find(name) != nullptr) reject("'" + name + "' occurs twice");
      expect(':');
      value.members_.emplace_back(std::move(name), parseValue(depth + 1));
    } while (take(','));
    expect('}');
    return value;
  }

  Json parseArray(int depth) {
    Json value = Json::array();
    expect('[');
    if (take(']')) return value;
    do {
      value.items_.push_back(parseValue(depth + 1));
    } while (take(','));
    expect(']');
    return value;
  }

  Json parseNumber() {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      if (at_ == first) reject("expected a value");
      return at_ - first;
    };
    const auto is = [&](std::string_view set) {
      return at_ < text_.size() && set.find(text_[at_]) != std::string_view::npos;
    };
    if (is("-")) ++at_;
    const bool zero = is("0");
    if (digits() > 1 && zero) reject("a number must not begin with 0");
    if (is(".")) {
      ++at_;
      digits();
    }
    if (is("eE")) {
      ++at_;
      if (is("+-")) ++at_;
      digits();
    }
    Json value;
    value.type_ = Json::Type::Number;
    value.text_ = std::string(text_.substr(begin, at_ - begin));
    return value;
  }

  uint32_t parseHex() {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + 4) reject("expected four hex digits");
    at_ += 4;
    return code;
  }

  std::string parseString() {
    std::string out;
    ++at_;
    while (true) {
      if (at_ == text_.size()) reject("a string has no end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) reject("a control character in a string");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ == text_.size()) reject("a string has no end");
      const char escape = text_[at_++];
      constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      if (const size_t i = kFrom.find(escape); i != std::string_view::npos) {
        out += kTo[i];
      } else if (escape == 'u') {
        uint32_t code = parseHex();
        if (code >= 0xd800 && code < 0xdc00) {
          if (!takeWord("\\u")) reject("half of a surrogate pair");
          const uint32_t low = parseHex();
          if (low < 0xdc00 || low > 0xdfff) reject("half of a surrogate pair");
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xdc00 && code < 0xe000) {
          reject("half of a surrogate pair");
        }
        appendUtf8(out, code);
      } else {
        reject("no such escape");
      }
    }
  }

  std::string_view text_;
  const std::string& what_;
  size_t at_ = 0;
};

Json::Json(double value) : type_(Type::Number) {
  if (!std::isfinite(value)) {
    throw Error(ErrorKind::InvalidArgument, "JSON has no infinities and no NaN");
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text_.assign(digits, end);
}

Json Json::array(std::vector<Json> items) {
  Json value;
  value.type_ = Type::Array;
  value.items_ = std::move(items);
  return value;
}

Json Json::object(Members members) {
  Json value;
  value.type_ = Type::Object;
  value.members_ = std::move(members);
  return value;
}

Json Json::parse(std::string_view text, const std::string& what) {
  return JsonParser(text, what).document();
}

void Json::rejectAs(const char* wanted) const {
  std::string text = print();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw Error(ErrorKind::InvalidArgument, text + " is not " + wanted);
}

bool Json::asBool() const {
  if (type_ != Type::Bool) rejectAs("true or false");
  return text_ == "true";
}

int64_t Json::asInt() const {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (type_ != Type::Number || error != std::errc() || end != text_.data() + text_.size()) {
    rejectAs("an integer");
  }
  return value;
}

int Json::asInt32() const {
  const int64_t value = asInt();
  if (value < INT32_MIN || value > INT32_MAX) {
    throw Error(ErrorKind::InvalidArgument, std::to_string(value) + " is too large");
  }
  return static_cast<int>(value);
}

double Json::asDouble() const {
  double value = 0;
  if (type_ != Type::Number) rejectAs("a number");
  std::from_chars(text_.data(), text_.data() + text_.size(), value);
  return value;
}

const std::string& Json::asString() const {
  if (type_ != Type::String) rejectAs("a string");
  return text_;
}

const std::vector<Json>& Json::items() const {
  if (type_ != Type::Array) rejectAs("a list");
  return items_;
}

const Json::Members& Json::members() const {
  if (type_ != Type::Object) rejectAs("an object");
  return members_;
}

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : members()) {
    if (key == name) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view name) const {
  if (const Json* value = find(name)) return *value;
  throw Error(ErrorKind::InvalidArgument, "there is no '" + std::string(name) + "'");
}

int Json::intOr(std::string_view name, int otherwise) const {
  const Json* value = find(name);
  return value == nullptr ? otherwise : value->asInt32();
}

bool Json::boolOr(std::string_view name, bool otherwise) const {
  const Json* value = find(name);
  return value == nullptr ? otherwise : value->asBool();
}

Json& Json::set(std::string name, Json value) {
  members_.emplace_back(std::move(name), std::move(value));
  return *this;
}

std::string Json::print(size_t width) const {
  std::string out;
  print(out, width, 0);
  return out;
}

void Json::print(std::string& out, size_t width, size_t indent) const {
  if (type_ == Type::Null) {
    out += "null";
    return;
  }
  if (type_ == Type::String) return appendQuoted(out, text_);
  if (type_ != Type::Array && type_ != Type::Object) {
    out += text_;
    return;
  }
  const bool isArray = type_ == Type::Array;
  const size_t count = isArray ? items_.size() : members_.size();
  const auto elements = [&](size_t inner, const std::string& separator) {
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += separator;
      if (!isArray) {
        appendQuoted(out, members_[i].first);
        out += ": ";
      }
      (isArray ? items_[i] : members_[i].second).print(out, inner, indent + 1);
    }
  };
  const size_t begin = out.size();
  out += isArray ? '[' : '{';
  elements(0, ", ");
  out += isArray ? ']' : '}';
  if (width == 0 || count == 0 || out.size() - begin + indent <= width) return;
  out.resize(begin);
  const std::string line = "\n" + std::string(indent + 1, ' ');
  out += (isArray ? "[" : "{") + line;
  elements(width, "," + line);
  out += "\n" + std::string(indent, ' ') + (isArray ? ']' : '}');
}

}  // namespace ctran
