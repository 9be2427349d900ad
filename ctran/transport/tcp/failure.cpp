#include "ctran/transport/tcp/failure.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ctran/base/checked.h"
#include "ctran/transport/tcp/frame.h"

namespace ctran {
namespace {

constexpr size_t kMaxNamedRanks = 64;
constexpr size_t kMaxText = 4000;

void appendTo(std::string& to, const std::string& text) {
  const auto length = static_cast<uint32_t>(std::min(text.size(), kMaxText));
  to.append(reinterpret_cast<const char*>(&length), sizeof length);
  to.append(text, 0, length);
}

void appendTo(std::string& to, int32_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}
  bool works() const { return works_; }

  int32_t number() {
    int32_t value = 0;
    if (text_.size() - at_ < sizeof value) return fail();
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string string() {
    const auto length = static_cast<uint32_t>(number());
    if (!works_ || length > kMaxText || text_.size() - at_ < length) {
      fail();
      return {};
    }
    at_ += length;
    return text_.substr(at_ - length, length);
  }

 private:
  int32_t fail() {
    works_ = false;
    return 0;
  }

  const std::string& text_;
  size_t at_ = 0;
  bool works_ = true;
};

/// Takes out the lines that begin so.
void withoutLines(std::string& text, const std::string& begin) {
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    text.erase(at, text.find('\n', at + 1) - at);
  }
}

}  // namespace

static_assert(kFailureBytes >= 4 * (3 + kMaxNamedRanks) + 3 * (4 + kMaxText));

std::string serializeFailure(const Error& error, int reporter) {
  std::string message = error.message();
  if (message.find("(reported by rank ") == std::string::npos) {
    message.resize(std::min(message.size(), kMaxText - 64));
    message += "\n  (reported by rank " + std::to_string(reporter) + ")";
  }
  std::string text;
  appendTo(text, static_cast<int32_t>(error.kind()));
  const auto ranks = static_cast<int32_t>(std::min(error.ranks().size(), kMaxNamedRanks));
  appendTo(text, ranks);
  for (int32_t i = 0; i < ranks; ++i) appendTo(text, error.ranks()[i]);
  appendTo(text, message);
  appendTo(text, error.op());
  appendTo(text, error.hint());
  return text;
}

Error parseFailure(const std::string& text, int sender, int size) {
  Parser parser(text);
  const int32_t kind = parser.number();
  const int32_t count = parser.number();
  std::vector<int> ranks;
  for (int32_t i = 0; i < count && i < static_cast<int32_t>(kMaxNamedRanks) && parser.works();
       ++i) {
    const int rank = parser.number();
    if (rank >= 0 && rank < size) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(sender);
  std::string message = printable(parser.string());
  const std::string op = printable(parser.string());
  const std::string hint = printable(parser.string());
  withoutLines(message, "\n  (passed on by rank ");
  // Whatever else it says, this end knows from whom it has it.
  const std::string who = " by rank " + std::to_string(sender) + ")";
  if (!message.ends_with("(reported" + who)) message += "\n  (passed on" + who;
  // A wrong argument, kind 0, breaks nothing and is not told to others.
  static_assert(static_cast<int32_t>(ErrorKind::InvalidArgument) == 0);
  if (!parser.works() || kind <= 0 || kind > static_cast<int32_t>(ErrorKind::System)) {
    return Error(ErrorKind::Aborted,
                 "rank " + std::to_string(sender) + " failed, and did not say why", {sender});
  }
  return Error(static_cast<ErrorKind>(kind), message, ranks, op, hint);
}

}  // namespace ctran
