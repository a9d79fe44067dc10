// SHA-1 against the examples of its standard.
#include "base/sha1.h"

#include <gtest/gtest.h>

namespace protrain::sha1_test {
namespace {

std::string sum(const std::string &text, std::size_t piece) {
  Sha1 sha1;
  for (std::size_t at = 0; at < text.size(); at += piece)
    sha1.add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
  return sha1.hex();
}

TEST(Sha1, FollowsTheStandard) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1000}}) {
    EXPECT_EQ(sum("", piece), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    EXPECT_EQ(sum("abc", piece), "a9993e364706816aba3e25717850c26c9cd0d89d");
    EXPECT_EQ(sum("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", piece),
              "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    EXPECT_EQ(sum(std::string(1'000'000, 'a'), piece), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  }
}

}  // namespace
}  // namespace protrain::sha1_test
