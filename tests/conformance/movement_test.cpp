#include "conformance/contest.h"

namespace protrain::test::movement_test {
namespace {

PROTRAIN_FAMILY(TransposeKernel);
PROTRAIN_FAMILY(SliceKernel);
PROTRAIN_FAMILY(SliceGradKernel);
PROTRAIN_FAMILY(ConcatKernel);
PROTRAIN_FAMILY(SplitKernel);
PROTRAIN_FAMILY(ExpandKernel);
PROTRAIN_FAMILY(PadKernel);
PROTRAIN_FAMILY(TriluKernel);

using Integers = std::vector<std::int64_t>;
const DType kTypes[] = {DType::f32, DType::i64, DType::i32, DType::boolean};

// Random elements: floats, bools that are 0 or 1, integers from 0 to 99.
Array elements(DType dtype, const Shape &shape, unsigned seed) {
  if (dtype == DType::f32) return random_floats(shape, seed);
  return random_integers(shape, seed, 0, dtype == DType::boolean ? 2 : 100, dtype);
}

void expect_for_every_type(Conformance &backend, const char *op, const Attributes &attributes,
                           const std::vector<Shape> &shapes, std::size_t outputs = 1) {
  for (DType dtype : kTypes) {
    OneNode one{op, attributes, {}, std::vector<bool>(outputs, true)};
    for (const Shape &shape : shapes) one.inputs.push_back(elements(dtype, shape, static_cast<unsigned>(shape.size())));
    backend.expect_reference(one, 0);
  }
}

struct Permutation {
  Shape shape;
  Integers order;
};
const Permutation kPermutations[] = {
    {{}, {}},
    {{7}, {0}},
    {{64, 64}, {1, 0}},
    {{131, 257}, {1, 0}},
    {{1, 257}, {1, 0}},
    {{2, 129}, {1, 0}},
    {{3, 67, 5, 8}, {0, 2, 1, 3}},
    {{3, 67, 5, 8}, {0, 2, 3, 1}},
    {{3, 67, 5, 8}, {3, 2, 1, 0}},
    {{3, 67, 5, 8}, {1, 3, 0, 2}},
    {{3, 67, 5, 8}, {0, 1, 2, 3}},
    {{2, 1, 65, 1, 70}, {4, 3, 2, 1, 0}},
    {{2, 65, 70}, {0, 2, 1}},
    {{2, 65, 70}, {2, 0, 1}},
    {{2, 65, 70}, {1, 2, 0}},
    {{3, 0, 5}, {2, 1, 0}},
};

TEST_P(TransposeKernel, EveryKindOfPermutation) {
  for (const auto &[shape, order] : kPermutations)
    expect_for_every_type(*this, "Transpose", {{"perm", order}}, {shape});
  expect_for_every_type(*this, "Transpose", {}, {{3, 67, 5}});
}

struct Cut {
  Shape shape;
  Integers starts, ends, axes, steps;
};
const Cut kCuts[] = {
    {{13, 300}, {2}, {9}, {0}, {1}},
    {{13, 300}, {-200}, {-1}, {1}, {1}},
    {{13, 300}, {1, 5}, {100, 1000}, {0, 1}, {3, 7}},
    {{13, 300}, {-1, -1}, {-100, -1000}, {0, 1}, {-1, -2}},
    {{13, 300}, {5}, {5}, {0}, {1}},
    {{13, 300}, {400}, {500}, {1}, {1}},
    {{13, 300}, {-1000}, {1000}, {1}, {1}},
    {{3, 5, 7, 11}, {1, 2, 10}, {3, 5, 2}, {0, -2, 3}, {1, 2, -3}},
    {{0, 4}, {1}, {3}, {1}, {1}},
};

Attributes slice_attributes(const Cut &cut) {
  return {{"starts", cut.starts}, {"ends", cut.ends}, {"axes", cut.axes}, {"steps", cut.steps}};
}

// Slices runs of elements whose start and length in bytes are multiples of 16, 8, 4 or 2, or of none of these. Kernels
// choose the width of their copies by these multiples.
TEST_P(SliceKernel, RunsOfEveryWidth) {
  for (std::int64_t unit : {1, 2, 3, 4, 8, 16})
    for (std::int64_t first : {0, 1, 2, 4, 8, 16})
      for (std::int64_t whole : {96, 100, 102, 103}) {
        const Attributes attributes = {
            {"starts", Integers{1, first}}, {"ends", Integers{4, first + 3 * unit}}, {"axes", Integers{0, 1}}};
        expect_for_every_type(*this, "Slice", attributes, {{5, whole}});
      }
}

TEST_P(SliceKernel, BoundsOfEveryKind) {
  for (const Cut &cut : kCuts) expect_for_every_type(*this, "Slice", slice_attributes(cut), {cut.shape});
  expect_for_every_type(*this, "Slice", {{"starts", Integers{1, 2}}, {"ends", Integers{3, 4}}}, {{5, 6, 7}});
}

TEST_P(SliceGradKernel, FillsTheSliceAndNothingElse) {
  for (const Cut &cut : kCuts) {
    Attributes attributes = slice_attributes(cut);
    const Shape sliced = infer({"Slice", attributes, {random_floats(cut.shape, 1)}})[0].shape;
    attributes.set("shape", cut.shape);
    expect_for_every_type(*this, "SliceGrad", attributes, {sliced});
  }
}

TEST_P(ConcatKernel, JoinsAlongAnyAxis) {
  expect_for_every_type(*this, "Concat", {{"axis", std::int64_t{0}}}, {{3, 300}, {5, 300}, {1, 300}});
  expect_for_every_type(*this, "Concat", {{"axis", std::int64_t{-1}}}, {{7, 300}, {7, 1}, {7, 0}, {7, 200}});
  expect_for_every_type(*this, "Concat", {{"axis", std::int64_t{1}}}, {{2, 3, 257}, {2, 4, 257}});
  expect_for_every_type(*this, "Concat", {{"axis", std::int64_t{0}}}, {{1}, {1}});
  expect_for_every_type(*this, "Concat", {{"axis", std::int64_t{2}}}, {{2, 3, 64}, {2, 3, 128}, {2, 3, 8}});
}

TEST_P(SplitKernel, CutsAlongAnyAxis) {
  expect_for_every_type(*this, "Split", {{"axis", std::int64_t{-1}}, {"split", Integers{300, 1, 0, 200}}}, {{7, 501}},
                        4);
  expect_for_every_type(*this, "Split", {{"axis", std::int64_t{0}}, {"split", Integers{2, 5}}}, {{7, 501}}, 2);
  expect_for_every_type(*this, "Split", {{"axis", std::int64_t{1}}}, {{2, 9, 31}}, 3);
  expect_for_every_type(*this, "Split", {{"axis", std::int64_t{1}}}, {{2, 10, 31}}, 3);  // pieces of 4, 4 and 2
}

TEST_P(SplitKernel, PiecesThatNobodyWantsAreSkipped) {
  expect_reference({"Split",
                    {{"axis", std::int64_t{-1}}, {"split", Integers{3, 4, 5}}},
                    {random_floats({7, 12}, 2)},
                    {false, true, false}},
                   0);
}

TEST_P(ExpandKernel, RepeatsAlongStretchedAxes) {
  struct Stretch {
    Shape from, to;
  };
  for (const auto &[from, to] :
       {Stretch{{}, {}}, Stretch{{}, {3, 700}}, Stretch{{1}, {0}}, Stretch{{5, 1}, {5, 300}}, Stretch{{300}, {5, 300}},
        Stretch{{3, 1, 5}, {2, 3, 67, 5}}, Stretch{{3, 67}, {1, 67}}, Stretch{{2, 1, 3, 1}, {2, 4, 3, 5}}})
    expect_for_every_type(*this, "Expand", {{"shape", to}}, {from});
}

TEST_P(PadKernel, FillsAround) {
  struct Frame {
    Shape shape;
    Attributes attributes;
  };
  for (auto [shape, attributes] :
       {Frame{{13, 300}, {{"pads", Integers{1, 2, 0, 3}}}}, Frame{{2, 3, 257}, {{"pads", Integers{0, 5, 0, 0, 0, 2}}}},
        Frame{{3, 0}, {{"pads", Integers{2, 1}}, {"axes", Integers{-1}}}}}) {
    expect_for_every_type(*this, "Pad", attributes, {shape});
    attributes.set("value", Integers{1});
    expect_reference({"Pad", attributes, {elements(DType::i64, shape, 3)}}, 0);
    expect_reference({"Pad", attributes, {elements(DType::boolean, shape, 4)}}, 0);
    attributes.set("value", -2.5);
    expect_reference({"Pad", attributes, {elements(DType::f32, shape, 5)}}, 0);
  }
}

TEST_P(TriluKernel, KeepsEitherSideOfAnyDiagonal) {
  for (const Shape &shape :
       {Shape{1, 1}, Shape{67, 67}, Shape{3, 5, 31}, Shape{3, 31, 5}, Shape{2, 0, 4}, Shape{2, 4, 0}})
    for (std::int64_t upper : {0, 1})
      for (std::int64_t k : {-100, -3, -1, 0, 1, 4, 100})
        expect_reference({"Trilu", {{"upper", upper}, {"k", k}}, {random_floats(shape, 4)}}, 0);
  expect_for_every_type(*this, "Trilu", {}, {{9, 7}});
}

}  // namespace
}  // namespace protrain::test::movement_test
