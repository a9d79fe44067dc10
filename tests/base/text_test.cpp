// Text: parsing of numbers and sizes, nearest words, globs, and escapes for JSON and for a terminal.
#include "base/text.h"

#include <gtest/gtest.h>

namespace protrain::text_test {
namespace {

TEST(ParseBytes, ReadsThousandsAnd1024sAndPlainBytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("7B"), 7u);
  EXPECT_EQ(parse_bytes("1KB"), 1000u);
  EXPECT_EQ(parse_bytes("1KiB"), 1024u);
  EXPECT_EQ(parse_bytes("3MB"), 3'000'000u);
  EXPECT_EQ(parse_bytes("3MiB"), 3u << 20);
  EXPECT_EQ(parse_bytes("20GB"), 20'000'000'000u);
  EXPECT_EQ(parse_bytes("20 GiB"), 20ull << 30);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000u);
  EXPECT_EQ(parse_bytes("2TiB"), 2ull << 40);
  EXPECT_EQ(parse_bytes("1.5GiB"), 3ull << 29);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char *text : {"", "GiB", "-1", "1e9", "12gib", "12 ", " 12", "12 GiB ", "1.5", "0x10", "1,5GB", "1..5GB",
                           "99999999999999999999", "18446744073709551615TiB", "20000000.5TiB"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(ParseNumbers, TakeTheWholeTextOrNothing) {
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("12x"), std::nullopt);
  EXPECT_EQ(parse_integer("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_real("1e-3"), 1e-3);
  EXPECT_EQ(parse_real("0,001"), std::nullopt);
  for (const char *text : {"", "nan", "inf", "-inf", "1e999", " 1", "+1"})
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
}

TEST(RealText, ReadsBackAsTheSameNumber) {
  EXPECT_EQ(real_text(0.001), "0.001");
  EXPECT_EQ(real_text(1e-8), "1e-08");
  EXPECT_EQ(parse_real(real_text(1.0 / 3)), 1.0 / 3);
}

TEST(NearestWord, FindsTheTypoAndNothingFarAway) {
  const std::vector<std::string_view> keys = {"device_memory", "host_memory", "learning_rate", "seed"};
  EXPECT_EQ(nearest_word("device_memroy", keys), "device_memory");
  EXPECT_EQ(nearest_word("learn_rate", keys), "learning_rate");
  EXPECT_EQ(nearest_word("sed", keys), "seed");
  EXPECT_EQ(nearest_word("zzzzzz", keys), "");
  EXPECT_EQ(nearest_word("", keys), "");
}

TEST(GlobMatch, KnowsStarsAndQuestionMarksOnly) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("m.h.*.weight", "m.h.0.attn.c_attn.weight"));
  EXPECT_TRUE(glob_match("*ab*ab", "xabab_ab"));
  EXPECT_TRUE(glob_match("h.?.bias", "h.3.bias"));
  EXPECT_FALSE(glob_match("h.?.bias", "h.10.bias"));
  EXPECT_FALSE(glob_match("*.weight", "w.weights"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("[ab]", "a"));
}

TEST(GlobMatch, IsFastOnPatternsMadeToBeSlow) {
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(Fnv1a, IsTheHashItAlwaysWas) {
  EXPECT_EQ(fnv1a(""), 0xCBF29CE484222325u);
  EXPECT_EQ(fnv1a("a"), 0xAF63DC4C8601EC8Cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171F73967E8u);
  EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar"));
}

TEST(JsonEscape, LeavesValidJsonStrings) {
  EXPECT_EQ(json_escape("a\"b\\c\n\x1b"), "a\\\"b\\\\c\\u000a\\u001b");
  EXPECT_EQ(json_escape("gr\xC3\xB6\xC3\x9F"), "gr\xC3\xB6\xC3\x9F");
  EXPECT_EQ(json_escape("\xFF\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(json_escape("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("h.0\x1b[2J\r\n"), "h.0\\x1b[2J\\x0d\\x0a");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // the 8-bit form of ESC [
  EXPECT_EQ(printable("na\xC3\xAFve \xFF"), "na\xC3\xAFve \\xff");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, CutsLongTextAtTheLimitAndNeverInsideACharacter) {
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(printable(std::string(201, 'x')), std::string(197, 'x') + "...");
  EXPECT_EQ(printable("\xC3\xB6\xC3\xB6\xC3\xB6\xC3\xB6", 6), "\xC3\xB6...");
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "\x01";
  EXPECT_LE(printable(many).size(), 200u);
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a|b||", '|'), (std::vector<std::string>{"a", "b", "", ""}));
  EXPECT_EQ(split("", '|'), std::vector<std::string>{""});
}

TEST(BytesText, ChoosesAUnitForPeople) {
  EXPECT_EQ(bytes_text(512), "512 bytes");
  EXPECT_EQ(bytes_text(3ull << 29), "1.50 GiB");
}

}  // namespace
}  // namespace protrain::text_test
