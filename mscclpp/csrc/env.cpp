#include "mscclpp/env.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace mscclpp {
namespace {

std::string text(const char* name, const std::string& otherwise = {}) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

int positive(const char* name, int otherwise) {
  const std::string value = text(name, std::to_string(otherwise));
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number <= 0) {
    throw Error(std::string(name) + "=" + value + " is no positive number",
                ErrorCode::InvalidUsage);
  }
  return number;
}

}  // namespace

Env::Env()
    : hostid(text("MSCCLPP_HOSTID")),
      commId(text("MSCCLPP_COMM_ID")),
      secret(text("MSCCLPP_SECRET")),
      cacheDir(text("MSCCLPP_CACHE_DIR", text("HOME", "/tmp") + "/.cache/mscclpp")),
      timeoutSeconds(positive("MSCCLPP_TIMEOUT", 60)) {}

std::shared_ptr<Env> env() {
  static const std::shared_ptr<Env> once(new Env);
  return once;
}

}  // namespace mscclpp
