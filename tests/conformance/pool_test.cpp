// Compares the kernels of pools with their reference.
#include "conformance/contest.h"

namespace protrain::test::pool_test {
namespace {

PROTRAIN_FAMILY(PoolKernel);

using Integers = std::vector<std::int64_t>;

struct Form {
  Shape x;
  Integers kernel, strides, dilations, pads;
  std::int64_t rounds_up = 0;

  Attributes attributes() const {
    return {{"kernel_shape", kernel},
            {"strides", strides},
            {"dilations", dilations},
            {"pads", pads},
            {"ceil_mode", rounds_up}};
  }
};

const std::vector<Form> kForms = {
    {{3, 5, 13}, {3}, {1}, {1}, {1, 1}},
    {{2, 3, 9, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {{2, 3, 8, 8}, {2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {{2, 3, 8, 7}, {2, 3}, {3, 3}, {1, 1}, {0, 1, 0, 0}, 1},
    {{1, 2, 12, 10}, {3, 2}, {1, 2}, {2, 3}, {2, 1, 2, 2}},
    {{1, 3, 7, 7}, {7, 7}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {{2, 3, 4, 5, 6}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 0, 0, 1, 1}},
};

TEST_P(PoolKernel, IsTheReferenceInEveryForm) {
  unsigned seed = 0;
  for (const Form &form : kForms) {
    const Array x = random_floats(form.x, seed += 10);
    for (std::int64_t order : {0, 1}) {
      Attributes attributes = form.attributes();
      attributes.set("storage_order", order);
      expect_reference({"MaxPool", attributes, {x}, {true, true}}, 1e-6);
    }
    const OneNode pool{"MaxPool", form.attributes(), {x}};
    expect_reference(pool, 1e-6);
    const Array dy = random_floats(reference(pool)[0].shape(), seed + 1);
    expect_reference({"MaxPoolGrad", form.attributes(), {dy, x}}, 1e-6);
    for (std::int64_t with_pads : {0, 1}) {
      Attributes attributes = form.attributes();
      attributes.set("count_include_pad", with_pads);
      expect_reference({"AveragePool", attributes, {x}}, 1e-6);
      attributes.set("shape", form.x);
      expect_reference({"AveragePoolGrad", attributes, {dy}}, 1e-6);
    }
  }
}

// If the largest element of a window occurs several times, the first one gets the gradient. In some windows all
// elements are -infinity.
TEST_P(PoolKernel, GivesTheGradientToTheFirstOfTheLargest) {
  const Attributes windows = kForms[1].attributes();
  std::vector<double> values(2 * 99);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i < 50 ? -std::numeric_limits<double>::infinity() : static_cast<double>(i % 3);
  const Array x = Array::from_doubles({DType::f32, {1, 2, 9, 11}}, values);
  expect_reference({"MaxPoolGrad", windows, {random_floats({1, 2, 5, 6}, 1), x}}, 1e-6);
}

}  // namespace
}  // namespace protrain::test::pool_test
