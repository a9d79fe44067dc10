#include "base/variant.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace protrain::variant_test {
namespace {

// A type that throws when it is copied, but can be moved.
struct Fragile {
  Fragile() = default;
  Fragile(const Fragile &) { throw 1; }
  Fragile(Fragile &&) noexcept = default;
  Fragile &operator=(Fragile &&) noexcept = default;
};

using TestVariant = Variant<bool, long, double, std::string, std::vector<int>, Fragile>;

TEST(Variant, SurvivesAnAlternativeThatThrowsWhenItIsCopied) {
  const TestVariant fragile{Fragile()};
  EXPECT_THROW(const TestVariant copy(fragile), int);
  TestVariant other = std::string("a text too long for the object itself to hold it");
  EXPECT_THROW(other = fragile, int);
  EXPECT_EQ(std::get<std::string>(other), "a text too long for the object itself to hold it");
  const Fragile alone;
  EXPECT_THROW(other = alone, int);
  EXPECT_EQ(other.index(), 3u);
}

TEST(Variant, IsCopiedAndMoved) {
  const TestVariant text = "text", list = std::vector<int>{1, 2};
  TestVariant copy = list;
  EXPECT_EQ(std::get<std::vector<int>>(copy).size(), 2u);
  copy = text;
  EXPECT_EQ(std::get<std::string>(copy), "text");
  const TestVariant moved = std::move(copy);
  EXPECT_EQ(std::get<std::string>(moved), "text");
}

}  // namespace
}  // namespace protrain::variant_test
