#include "ctran/capi/plan.h"

#include <gtest/gtest.h>

#include "ctran/base/error.h"
#include "ctran/base/json.h"

namespace ctran {
namespace {

Json call(const std::string& request) {
  char* answer = ctran_plan_call(request.c_str());
  const Json json = Json::parse(answer);
  ctran_plan_free(answer);
  return json;
}

TEST(PlanCalls, DoWhatTheyAreAskedFor) {
  const Json library = call(R"({"do": "library"})").at("ok");
  EXPECT_GT(library.items().size(), 25u);
  const Json plan =
      call(R"({"do": "make", "name": "all_reduce.ring", "ranks": 3, "lanes": 2})").at("ok");
  EXPECT_EQ(plan.at("ranks").asInt(), 3);
  const std::string with = ", \"plan\": " + plan.print() + "}";
  EXPECT_EQ(call("{\"do\": \"text\"" + with).at("ok").asString().substr(0, 21),
            "plan all_reduce.ring:");
  const Json report = call("{\"do\": \"verify\"" + with).at("ok");
  EXPECT_TRUE(report.at("findings").items().empty());
  EXPECT_TRUE(report.at("properties").at("in_place_safe").asBool());
  EXPECT_GT(call("{\"do\": \"simulate\", \"bytes\": 1000" + with).at("ok").at("seconds").asDouble(),
            0);
  const Json number = call("{\"do\": \"register\", \"communicator\": \"nobody\"" + with).at("ok");
  const std::string remove = "{\"do\": \"remove\", \"number\": " + number.print() + "}";
  EXPECT_TRUE(call(remove).at("ok").asBool());
  EXPECT_FALSE(call(remove).at("ok").asBool());
}

TEST(PlanCalls, AnswerNonsenseWithAnError) {
  for (const char* bad :
       {"", "{", "[]", "{}", R"({"do": "dance"})", R"({"do": "make", "name": "x"})",
        R"({"do": "text"})", R"({"do": "verify", "plan": {}})",
        R"({"do": "make", "name": "all_reduce.ring", "ranks": -1})",
        R"({"do": "remove", "number": "x"})"}) {
    const Json answer = call(bad);
    EXPECT_EQ(answer.at("kind").asInt(), static_cast<int>(ErrorKind::InvalidArgument)) << bad;
    EXPECT_FALSE(answer.at("error").asString().empty());
  }
}

}  // namespace
}  // namespace ctran
