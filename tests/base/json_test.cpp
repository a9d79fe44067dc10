#include "base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "errors.h"

namespace protrain::json_test {
namespace {

using test::code_of;
using Theirs = nlohmann::ordered_json;

TEST(JsonText, IsTheSameToTheByteAsNlohmanns) {
  const std::map<std::string, double> rates = {{"a", 0.001}, {"b", 1e30}};
  const Json ours = {{"text", "a\"\\\n\t\x01\x7F\xC3\xA9"},
                     {"none", Json()},
                     {"truth", true},
                     {"whole", std::uint64_t{1} << 63},
                     {"below", -7},
                     {"reals", Json::array({1.0, -0.5, 1e-7, 123456789.125, 1e300, 2.5f})},
                     {"odd", std::numeric_limits<double>::infinity()},
                     {"rates", rates},
                     {"list", std::vector<std::string>{"x", "y"}},
                     {"empty", Json::array()},
                     {"bare", Json::object()},
                     {"deep", {{"a", {{"b", 1}}}}}};
  const Theirs theirs = {{"text", "a\"\\\n\t\x01\x7F\xC3\xA9"},
                         {"none", nullptr},
                         {"truth", true},
                         {"whole", std::uint64_t{1} << 63},
                         {"below", -7},
                         {"reals", {1.0, -0.5, 1e-7, 123456789.125, 1e300, 2.5f}},
                         {"odd", std::numeric_limits<double>::infinity()},
                         {"rates", rates},
                         {"list", {"x", "y"}},
                         {"empty", Theirs::array()},
                         {"bare", Theirs::object()},
                         {"deep", {{"a", {{"b", 1}}}}}};
  EXPECT_EQ(ours.dump(), theirs.dump());
  EXPECT_EQ(ours.dump(1), theirs.dump(1));
  EXPECT_EQ(parse_json(theirs.dump(), "text").dump(1), theirs.dump(1));
}

TEST(JsonText, OfAnyNumberReadsBackAsTheSameNumber) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(Json(value).dump(), Theirs(value).dump());
    EXPECT_EQ(parse_json(Json(value).dump(), "number").number(), value);
  }
}

TEST(JsonText, ReplacesBytesThatAreNotUtf8) { EXPECT_EQ(Json("a\xFFz").dump(), "\"a\xEF\xBF\xBDz\""); }

TEST(JsonValue, StandsInAMessageEscapedAndCut) {
  EXPECT_EQ(fmt::format("{} is no rate", Json("a\x7F")), "\"a\\x7f\" is no rate");
  const std::string cut = fmt::format("{}", Json(std::string(1000, 'a')));
  EXPECT_EQ(cut.size(), 200u);
  EXPECT_TRUE(cut.ends_with("a...")) << cut;
}

TEST(JsonValue, GrowsMembersAndItemsFromNothing) {
  Json json;
  json["a"]["b"] = 1;
  json["list"].push_back("x");
  json["list"].push_back({{"y", 2}});
  json["a"]["b"] = 3;
  EXPECT_EQ(json.dump(), R"({"a":{"b":3},"list":["x",{"y":2}]})");
}

TEST(JsonValue, SaysWhatItIsAndNothingElse) {
  const Json json =
      parse_json(R"({"w": 7, "n": -7, "r": 1.5, "t": "x", "b": false, "l": [1, 2], "o": {}, "z": null})", "");
  EXPECT_EQ(*json.find("w")->whole(), 7u);
  EXPECT_EQ(json.find("n")->whole(), nullptr);
  EXPECT_EQ(json.find("n")->number(), -7);
  EXPECT_EQ(json.find("r")->whole(), nullptr);
  EXPECT_EQ(json.find("r")->number(), 1.5);
  EXPECT_EQ(*json.find("t")->text(), "x");
  EXPECT_FALSE(json.find("t")->number().has_value());
  EXPECT_FALSE(*json.find("b")->truth());
  EXPECT_FALSE(json.find("b")->number().has_value());
  EXPECT_EQ(json.find("l")->items()->size(), 2u);
  EXPECT_EQ(json.find("l")->find("x"), nullptr);
  EXPECT_TRUE(json.find("o")->members()->empty());
  EXPECT_TRUE(json.find("z")->is_null());
  EXPECT_EQ(json.find("nothing"), nullptr);
}

TEST(JsonText, ThatIsNoneIsMalformed) {
  for (const char *text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1e999", "\"\xFF\"", "{} {}", "{\"a\":1,\"a\":2}",
                           R"([{"a":{"b":1,"c":2,"b":3}}])"})
    EXPECT_EQ(code_of([&] { parse_json(text, "text"); }), Code::format) << text;
}

TEST(JsonText, IsReadUpToItsLimits) {
  EXPECT_EQ(parse_json("[[1]]", "text", {.depth = 2, .values = 3}).dump(), "[[1]]");
  EXPECT_EQ(code_of([] { parse_json("[[1]]", "text", {.depth = 1}); }), Code::format);
  EXPECT_EQ(code_of([] { parse_json("[[1]]", "text", {.values = 2}); }), Code::limit);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(code_of([&] { parse_json(deep, "text"); }), Code::format);
}

}  // namespace
}  // namespace protrain::json_test
