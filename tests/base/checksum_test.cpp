// Checksums are written to files, so every processor must compute the same ones.
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace protrain::checksum_test {
namespace {

std::vector<std::byte> bytes_of(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * i / 7 + i);
  return bytes;
}

// XXH3 chooses among several algorithms by the number of bytes; the limits are 16, 128 and 240. The numbers are those
// of xxHash 0.8.1 compiled for x86-64's baseline.
TEST(Checksum, IsXxh3OnEveryProcessor) {
  struct Expected {
    std::size_t bytes;
    std::uint64_t alone, after_77;
  };
  for (const auto &[count, alone, after_77] :
       {Expected{0, 0x2d06800538d394c2, 0x3e06214a603237b7}, Expected{1, 0xc44bdff4074eecdb, 0xcac5e0f49ba916c6},
        Expected{16, 0xae69f8fca0cbcbd5, 0xfbe7dda0b881ed94}, Expected{100, 0x340ab8fe5b87700b, 0x600453633260abff},
        Expected{240, 0x18257ec381dab65b, 0x481fe29d8d94c9c8}, Expected{241, 0x176615ffe36f2daa, 0x24ad3fd85bfe6aa1},
        Expected{1000, 0x8f7db900dcd23215, 0xcaabf47dbccf41b7}, Expected{1024, 0x2fb15b3705ab3607, 0xdba25248feac5501},
        Expected{4097, 0xfacca03c96bddac5, 0x29d7e3d471ba6165},
        Expected{1 << 20, 0x22d2eb41d80451b2, 0xfb92c1984df6d440}}) {
    const std::vector<std::byte> bytes = bytes_of(count);
    EXPECT_EQ(checksum(bytes), alone) << count;
    EXPECT_EQ(checksum(bytes, 77), after_77) << count;
  }
}

TEST(Checksum, DependsOnWhatCameBefore) {
  const std::vector<std::byte> bytes = bytes_of(1000);
  const std::span all(bytes);
  EXPECT_NE(checksum(all.subspan(400), checksum(all.first(400))), checksum(all.subspan(400), checksum(all.first(399))));
}

TEST(Digest, OfPartsIsThatOfTheWhole) {
  const std::string text(5000, 'x');
  Digest digest;
  for (std::size_t at = 0; at < text.size(); at += 700)
    digest.add(std::as_bytes(std::span(text).subspan(at, std::min<std::size_t>(700, text.size() - at))));
  EXPECT_EQ(digest.finish(), digest_of(text));
  EXPECT_EQ(digest.finish(), digest_of("")) << "finish() begins anew";
  EXPECT_EQ(digest_of(text).size(), 32u);
}

}  // namespace
}  // namespace protrain::checksum_test
