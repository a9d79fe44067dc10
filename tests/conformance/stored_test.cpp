// Products whose weights are stored in a narrow type. Most kernels widen some columns of the weights at a time (a
// panel). The results must agree with the reference.
#include "conformance/contest.h"

namespace protrain::test::stored_test {
namespace {

PROTRAIN_FAMILY(StoredKernel);

constexpr std::int64_t kOne = 1;

// A matrix as it is stored, and the attributes of the MatMul that reads it.
struct Stored {
  Attributes attributes;
  Array elements;
  std::vector<Array> more = {};  // scales and zero points
};

Array narrow(const Shape &shape, unsigned seed, DType dtype) {
  return Array::from_doubles({dtype, shape}, random_floats(shape, seed).doubles());
}

// Returns a matrix of shape (rows, columns) in each form in which weights can be stored.
std::vector<Stored> stored(std::int64_t rows, std::int64_t columns) {
  const Shape shape = {rows, columns};
  std::vector<Stored> all;
  for (DType dtype : {DType::bf16, DType::f16}) all.push_back({{{"stored", "Cast"}}, narrow(shape, 1, dtype)});
  const Attributes linear = {{"stored", "DequantizeLinear"}};
  all.push_back({linear, random_integers(shape, 2, -128, 128, DType::i8), {floats({}, {0.01})}});
  Attributes by_row = linear, blocks = linear;
  by_row.set("axis", std::int64_t{0});
  all.push_back({by_row,
                 random_integers(shape, 3, 0, 256, DType::u8),
                 {random_floats({rows}, 4, 0.005, 0.01), random_integers({rows}, 5, 100, 156, DType::u8)}});
  blocks.set("block_size", std::int64_t{32});
  blocks.set("bits", std::int64_t{4});
  blocks.set("shape", shape);
  const Array halves = random_integers({divided_up(rows * columns, 2)}, 6, 0, 256, DType::u8);
  for (const std::int64_t axis : {0, 1}) {
    blocks.set("axis", axis);
    blocks.set("signed", kOne);
    Shape scales = shape;
    scales[static_cast<std::size_t>(axis)] = divided_up(scales[static_cast<std::size_t>(axis)], 32);
    all.push_back({blocks, halves, {random_floats(scales, 7, 0.05, 0.1)}});
    blocks.set("signed", std::int64_t{0});
    all.push_back({blocks, halves, {random_floats(scales, 8, 0.05, 0.1), random_floats(scales, 9, 6, 9)}});
    all.push_back(
        {blocks, halves, {random_floats(scales, 8, 0.05, 0.1), random_integers(scales, 9, 0, 16, DType::u8)}});
    Attributes codes = blocks;
    codes.set("code", std::string("nf4"));
    all.push_back({codes, halves, {random_floats(scales, 7, 0.5, 1)}});
  }
  return all;
}

OneNode with(OneNode node, const Stored &matrix, std::size_t behind) {
  for (const auto &[key, value] : matrix.attributes.items()) node.attributes.set(key, value);
  node.inputs[1] = matrix.elements;
  if (matrix.more.empty()) return node;
  node.inputs.resize(behind);
  node.inputs.insert(node.inputs.end(), matrix.more.begin(), matrix.more.end());
  return node;
}

// With weights of four bits, the odd sizes put the first element of some rows and panels into the upper half of a
// byte.
TEST_P(StoredKernel, MultipliesByEveryFormOfWeights) {
  struct Sizes {
    std::int64_t m, k, n;
  };
  for (const Sizes &s : {Sizes{5, 33, 171}, Sizes{40, 64, 48}, Sizes{9, 258, 300}, Sizes{5, 69, 399}, Sizes{3, 70, 1},
                         Sizes{0, 8, 8}, Sizes{2, 0, 8}})
    for (const std::int64_t trans_b : {0, 1})
      for (const Stored &matrix : stored(trans_b ? s.n : s.k, trans_b ? s.k : s.n))
        for (const Shape &added : {Shape{}, Shape{s.n}, Shape{s.m, s.n}}) {
          OneNode node{
              "MatMul", {{"trans_b", trans_b}, {"alpha", -1.5}}, {random_floats({s.m, s.k}, 11), Array(), Array()}};
          if (!added.empty()) node.inputs[2] = random_floats(added, 12);
          expect_reference(with(node, matrix, 3), 2e-5);
        }
}

// The sizes make the CPU cut both the weights and the rows into several parts.
TEST_P(StoredKernel, CutsLargeProducts) {
  const std::int64_t rows = GetParam()->name == "emulated" ? 20 : 280;  // the emulated device cuts only b, and is slow
  const auto expect_product = [&](std::int64_t trans_b, const Array &b) {
    expect_reference({"MatMul", {{"trans_b", trans_b}, {"stored", "Cast"}}, {random_floats({2, rows, 700}, 1), b}},
                     1e-4);
  };
  expect_product(0, narrow({700, 1101}, 2, DType::bf16));
  expect_product(1, narrow({1101, 700}, 2, DType::f16));
}

TEST_P(StoredKernel, ComputesTheLossOfLogitsAndItsGradient) {
  const std::int64_t rows = 37, depth = 33, classes = 131;
  for (const std::int64_t trans_w : {0, 1})
    for (const Stored &matrix : stored(trans_w ? classes : depth, trans_w ? depth : classes)) {
      const Array x = random_floats({rows, depth}, 1), bias = random_floats({classes}, 2),
                  labels = random_integers({rows}, 3, 0, classes), teacher = random_floats({rows, classes}, 4);
      const Attributes attributes = {{"reduction", "mean"}, {"trans_w", trans_w}};
      for (const Array &targets : {labels, teacher}) {
        expect_reference(
            with({"LinearCrossEntropy", attributes, {x, Array(), targets, bias, Array(), Array()}}, matrix, 6), 2e-5);
        expect_reference(with({"LinearCrossEntropyGrad",
                               attributes,
                               {x, Array(), targets, bias, Array(), floats({}, {0.5})},
                               {true, true, false, true}},
                              matrix, 6),
                         2e-5);
      }
    }
}

}  // namespace
}  // namespace protrain::test::stored_test
