// Any text: it is refused, or what was read can be printed, and reads the same again.
#include "ctran/base/json.h"

#include "ctran/base/error.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ctran;
  const auto text = testing::textOf(data, size);
  try {
    const Json json = Json::parse(text);
    testing::require(Json::parse(json.print()) == json, "a line reads as what was printed");
    testing::require(Json::parse(json.print(40)) == json, "lines read as what was printed");
  } catch (const Error& error) {
    testing::require(error.kind() == ErrorKind::InvalidArgument, "bad text is a bad argument");
  }
  return 0;
}
