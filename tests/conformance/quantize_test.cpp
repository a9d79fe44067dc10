#include <limits>

#include "conformance/contest.h"

namespace protrain::test::quantize_test {
namespace {

PROTRAIN_FAMILY(QuantizeKernel);

// The ways in which a tensor of `shape` may have its scales.
struct Scales {
  Shape shape, scale;
  Attributes attributes;
};
const Scales kScales[] = {
    {{}, {}, {}},
    {{5, 1031}, {}, {}},
    {{5, 1031}, {1}, {}},
    {{5, 1031}, {5}, {{"axis", std::int64_t{0}}}},
    {{5, 1031}, {1031}, {}},
    {{3, 5, 7, 11}, {5}, {}},
    {{0, 4}, {4}, {}},
    {{6, 64}, {6, 2}, {{"axis", std::int64_t{1}}, {"block_size", std::int64_t{32}}}},
    {{6, 70}, {6, 5}, {{"axis", std::int64_t{-1}}, {"block_size", std::int64_t{16}}}},
    {{70, 33}, {5, 33}, {{"axis", std::int64_t{0}}, {"block_size", std::int64_t{16}}}},
    {{2, 70, 33}, {2, 3, 33}, {{"axis", std::int64_t{1}}, {"block_size", std::int64_t{32}}}},
};

Array scales_of(const Scales &s) { return random_floats(s.scale, 1, 0.01, 0.1); }

TEST_P(QuantizeKernel, DequantizesIntegersOfEveryType) {
  struct Integers {
    DType dtype;
    std::int64_t low, high;
  };
  for (const Scales &s : kScales)
    for (const Integers &i : {Integers{DType::i8, -128, 128}, Integers{DType::u8, 0, 256},
                              Integers{DType::i16, -32768, 32768}, Integers{DType::u16, 0, 65536}}) {
      const Array q = random_integers(s.shape, 2, i.low, i.high, i.dtype),
                  zero = random_integers(s.scale, 3, i.low, i.high, i.dtype);
      expect_reference({"DequantizeLinear", s.attributes, {q, scales_of(s), zero}});
      expect_reference({"DequantizeLinear", s.attributes, {q, scales_of(s)}});
    }
  expect_reference(
      {"DequantizeLinear", {}, {random_integers({3, 5}, 4, -1 << 20, 1 << 20, DType::i32), floats({}, {0.5})}});
}

TEST_P(QuantizeKernel, DequantizesInNarrowTypes) {
  for (DType dtype : GetParam()->narrow())
    for (Scales s : kScales) {
      s.attributes.set("output_dtype", std::string(name_of(dtype)));
      expect_reference(
          {"DequantizeLinear", s.attributes, {random_integers(s.shape, 2, -128, 128, DType::i8), scales_of(s)}});
    }
}

// Dequantizes codes of four bits, two of which share a byte, and codes of eight bits.
TEST_P(QuantizeKernel, DequantizesCodes) {
  for (const Scales &s : kScales) {
    Attributes eight = s.attributes, four = s.attributes;
    eight.set("code", std::string("dynamic"));
    expect_reference({"DequantizeLinear", eight, {random_integers(s.shape, 2, 0, 256, DType::u8), scales_of(s)}});
    four.set("code", std::string("nf4"));
    four.set("bits", std::int64_t{4});
    four.set("shape", s.shape);
    const Array halves = random_integers({divided_up(element_count(s.shape), 2)}, 2, 0, 256, DType::u8);
    expect_reference({"DequantizeLinear", four, {halves, scales_of(s)}});
  }
}

// Two elements lie in a byte, and an odd number of elements leaves half a byte unused.
TEST_P(QuantizeKernel, DequantizesFourBits) {
  for (const Scales &s : kScales)
    for (const std::int64_t is_signed : {0, 1}) {
      Attributes attributes = s.attributes;
      attributes.set("bits", std::int64_t{4});
      attributes.set("signed", is_signed);
      attributes.set("shape", s.shape);
      const Array q = random_integers({divided_up(element_count(s.shape), 2)}, 2, 0, 256, DType::u8),
                  zero = random_integers(s.scale, 3, -8, 8, DType::i8);
      expect_reference({"DequantizeLinear", attributes, {q, scales_of(s), zero}});
      attributes.set("zero_point", std::int64_t{8});
      expect_reference({"DequantizeLinear", attributes, {q, scales_of(s)}});
    }
}

// MatMulNBits stores two zero points in a byte, and pads each row of zero points to whole bytes. Its zero points can
// also be floats.
TEST_P(QuantizeKernel, ReadsZeroPointsOfMatMulNBits) {
  for (const std::int64_t blocks : {1, 2, 3, 5}) {
    const std::int64_t zero_row = divided_up(blocks, 2) * 2;
    Attributes attributes{{"axis", std::int64_t{1}},
                          {"block_size", std::int64_t{16}},
                          {"bits", std::int64_t{4}},
                          {"shape", Shape{7, 16 * blocks}}};
    const Array q = random_integers({7 * 8 * blocks}, 1, 0, 256, DType::u8), scale = random_floats({7, blocks}, 2);
    expect_reference({"DequantizeLinear", attributes, {q, scale, random_floats({7, blocks}, 3, 0, 15)}});
    attributes.set("zero_row", zero_row);
    expect_reference(
        {"DequantizeLinear", attributes, {q, scale, random_integers({7 * zero_row / 2}, 3, 0, 256, DType::u8)}});
  }
}

TEST_P(QuantizeKernel, FakeQuantizeRoundsAndClips) {
  for (const Scales &s : kScales) {
    Attributes attributes = s.attributes;
    attributes.set("low", std::int64_t{-8});
    attributes.set("high", std::int64_t{7});
    const Array x = random_floats(s.shape, 2, -2, 2), dy = random_floats(s.shape, 3),
                zero = random_integers(s.scale, 4, -3, 3, DType::i8);
    expect_reference({"FakeQuantize", attributes, {x, scales_of(s), zero}});
    expect_reference({"FakeQuantizeGrad", attributes, {dy, x, scales_of(s), zero}});
  }
}

TEST_P(QuantizeKernel, FakeQuantizeRoundsTiesToEvenAndKeepsNaN) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  const Array x = floats({8}, {0.25, 0.75, -0.25, 63.4, 63.9, -64.5, kNaN, kInfinity}),
              dy = floats({8}, {1, 2, 3, 4, 5, 6, 7, 8}), half = floats({}, {0.5});
  const Attributes bytes{{"low", std::int64_t{-128}}, {"high", std::int64_t{127}}};
  expect_reference({"FakeQuantize", bytes, {x, half}});
  expect_reference({"FakeQuantizeGrad", bytes, {dy, x, half}});
}

}  // namespace
}  // namespace protrain::test::quantize_test
