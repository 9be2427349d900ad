#include "ctran/base/json.h"

#include <gtest/gtest.h>

#include "tests/unit/support/ranks.h"

namespace ctran {
namespace {

using testing::errorOf;

TEST(Json, GivesBackWhatItRead) {
  for (const char* text :
       {"null", "true", "[]", "{}", "-0", "1e400", "18446744073709551615", "0.10",
        "{\"b\": [1, 2, {\"a\": \"x\"}], \"a\": null}", "\"\\\"\\\\\\u0001\"", "\"\xc3\xa9\""}) {
    EXPECT_EQ(Json::parse(text).print(), text);
  }
  EXPECT_EQ(Json::parse(" [ 1 ,\n2 ] ").print(), "[1, 2]");
  EXPECT_EQ(Json::parse("\"\\u00e9\\ud83d\\ude00\\n\\/\"").asString(),
            "\xc3\xa9\xf0\x9f\x98\x80\n/");
  const Json nested = Json::parse("{\"a\": [[1, 2], [3, 4]], \"b\": {}}");
  EXPECT_EQ(nested.print(12), "{\n \"a\": [\n  [1, 2],\n  [3, 4]\n ],\n \"b\": {}\n}");
  EXPECT_EQ(Json::parse(nested.print(12)), nested);
}

TEST(Json, ReadsValues) {
  const Json json = Json::parse("{\"n\": -7, \"x\": 2.5, \"s\": \"t\", \"b\": false}");
  EXPECT_EQ(json.at("n").asInt(), -7);
  EXPECT_EQ(json.at("x").asDouble(), 2.5);
  EXPECT_EQ(json.at("s").asString(), "t");
  EXPECT_FALSE(json.at("b").asBool());
  EXPECT_EQ(json.find("none"), nullptr);
  EXPECT_EQ(Json(0.1).print(), "0.1");
  for (const auto& wrong : std::vector<std::function<void()>>{
           [&] { (void)json.at("none"); }, [&] { (void)json.at("x").asInt(); },
           [&] { (void)json.at("n").asString(); }, [&] { (void)json.at("s").items(); },
           [&] { (void)json.at("s").find("a"); }, [&] { (void)json.at("s").asDouble(); },
           [&] { (void)Json(1.0 / 0.0); }}) {
    EXPECT_EQ(errorOf(wrong).kind(), ErrorKind::InvalidArgument);
  }
}

TEST(Json, SaysWhereATextIsWrong) {
  EXPECT_STREQ(errorOf([] { Json::parse("{\"a\": 1,\n  2}", "x.json"); }).what(),
               "x.json, line 2, column 3: expected a name in quotes");
  for (const std::string text :
       {"", "[1", "{\"a\" 1}", "01", "1.", "+1", "tru", "\"a", "\"\\x\"", "\"\\ud800\"", "[1] 2",
        "{\"a\": 1, \"a\": 2}", "\"\n\"", "nan", "[,]", "\"\\u12\"", "-"}) {
    EXPECT_EQ(errorOf([&] { Json::parse(text); }).kind(), ErrorKind::InvalidArgument) << text;
  }
  EXPECT_EQ(errorOf([] { Json::parse(std::string(100000, '[')); }).kind(),
            ErrorKind::InvalidArgument);
}

}  // namespace
}  // namespace ctran
