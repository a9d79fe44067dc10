// Compares the losses and their gradients with their references. Largest error allowed: 1e-5.
#include "backend/kernel_check.h"

namespace protrain::test::loss_test {
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

std::uint64_t scratch_of_linear_loss(const std::string &op, DType type, std::int64_t rows, std::int64_t classes) {
  graph::Node node;
  node.op = op;
  const Type x{type, {rows, 8}}, w{type, {classes, 8}}, targets{DType::i64, {rows}}, loss{DType::f32, {}};
  backend::KernelRequest request{node, {x, w, targets}, {loss}};
  if (op == "LinearCrossEntropyGrad") request.outputs = {loss, x, w};
  return backend::open("cpu", 2)->compile(request)->scratch_bytes;
}

TEST(LinearCrossEntropyKernel, NeverHoldsAllLogits) {
  const std::int64_t rows = 4096, classes = 50'000;
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    for (const char *op : {"LinearCrossEntropy", "LinearCrossEntropyGrad"})
      EXPECT_LT(scratch_of_linear_loss(op, type, rows, classes),
                static_cast<std::uint64_t>(rows * classes))  // a quarter of the bytes of all logits in float32
          << op << " in " << name_of(type);
}

TEST(LinearCrossEntropyKernel, FloatGradientsTakeThePlaceOfOneSliceOfLogits) {
  const std::uint64_t one_slice = std::uint64_t{64} << 20, products = 2 << 20;
  for (std::int64_t rows : {300, 350, 700, 4096})  // 1, 2, 3 and 13 slices, each with 33 to 62 MiB of logits
    EXPECT_LT(scratch_of_linear_loss("LinearCrossEntropyGrad", DType::f32, rows, 50'000), one_slice + products) << rows;
}

TEST(LinearCrossEntropyKernel, NarrowGradientsThatFitNeedNoWideSums) {
  const std::int64_t rows = 1024, classes = 50'000;
  const auto gradients = static_cast<std::uint64_t>(rows * classes) * 2, one_slice = std::uint64_t{64} << 20;
  EXPECT_LT(scratch_of_linear_loss("LinearCrossEntropyGrad", DType::bf16, rows, classes),
            gradients + one_slice + (1 << 20));
}

}  // namespace
}  // namespace protrain::test::loss_test
