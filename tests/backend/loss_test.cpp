// The losses and their gradients against their references. Largest error allowed: 1e-5.
#include "backend/kernel_check.h"

namespace protrain::test {
namespace {

Attributes form(const std::string &reduction, bool ignore) {
  Attributes attributes{{"reduction", reduction}};
  if (ignore) attributes.set("ignore_index", std::int64_t{-100});
  return attributes;
}

TEST(CrossEntropyKernel, MeanOverNothingIsNotANumber) {
  const Array targets = Array::from_integers({DType::i64, {3}}, {-100, -100, -100});
  EXPECT_TRUE(std::isnan(
      run_on_cpu({"CrossEntropy", form("mean", true), {random_floats({3, 4}, 1), targets}, {true, true}}, 2)[0]
          .doubles()[0]));
}

TEST(CrossEntropyKernel, LabelOutsideTheClassesIsAnErrorThatNamesIt) {
  for (std::int64_t label : {std::int64_t{700}, std::int64_t{-1}}) try {
      const Array targets = Array::from_integers({DType::i64, {3}}, {1, label, 0});
      run_on_cpu({"CrossEntropy", form("mean", false), {random_floats({3, 512}, 1), targets}, {true, true}}, 2);
      FAIL() << "label " << label << " was taken";
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::arg);
      EXPECT_EQ(error.text, "label " + std::to_string(label) + " of row 1 is outside 0..511");
    }
}

TEST(LinearCrossEntropyKernel, NeverHoldsAllLogits) {
  const std::int64_t rows = 4096, classes = 50'000;
  graph::Node node;
  node.op = "LinearCrossEntropy";
  const Type x{DType::f32, {rows, 8}}, w{DType::f32, {classes, 8}}, targets{DType::i64, {rows}}, loss{DType::f32, {}};
  const auto kernel = backend::open("cpu", 2)->compile({node, {x, w, targets}, {loss}});
  EXPECT_LT(kernel->scratch_bytes, static_cast<std::uint64_t>(rows * classes));  // a quarter of the logits' bytes
}

}  // namespace
}  // namespace protrain::test
