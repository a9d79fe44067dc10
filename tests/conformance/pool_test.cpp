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

// Both pools and their gradients, with all their attributes.
void expect_form(const Conformance &backend, const Form &form, unsigned seed) {
  const Array x = random_floats(form.x, seed);
  for (std::int64_t order : {0, 1}) {
    Attributes attributes = form.attributes();
    attributes.set("storage_order", order);
    backend.expect_reference({"MaxPool", attributes, {x}, {true, true}}, 1e-6);
  }
  const OneNode pool{"MaxPool", form.attributes(), {x}};
  backend.expect_reference(pool, 1e-6);
  const Array dy = random_floats(reference(pool)[0].shape(), seed + 1);
  backend.expect_reference({"MaxPoolGrad", form.attributes(), {dy, x}}, 1e-6);
  for (std::int64_t with_pads : {0, 1}) {
    Attributes attributes = form.attributes();
    attributes.set("count_include_pad", with_pads);
    backend.expect_reference({"AveragePool", attributes, {x}}, 1e-6);
    attributes.set("shape", form.x);
    backend.expect_reference({"AveragePoolGrad", attributes, {dy}}, 1e-6);
  }
}

TEST_P(PoolKernel, IsTheReferenceInEveryForm) {
  unsigned seed = 0;
  for (const Form &form : kForms) expect_form(*this, form, seed += 10);
}

TEST_P(PoolKernel, IsTheReferenceWhereAWindowHasFarMorePadsThanElements) {
  const std::vector<Form> forms = {
      {{1, 2, 9}, {40}, {7}, {3}, {100, 60}},
      {{1, 2, 9}, {41}, {5}, {2}, {70, 60}},
      {{1, 2, 3}, {50'000}, {1}, {1}, {30'000, 20'000}},
      {{1, 2, 3, 5}, {20, 30}, {2, 3}, {1, 1}, {18, 28, 19, 25}},
  };
  unsigned seed = 100;
  for (const Form &form : forms) expect_form(*this, form, seed += 10);
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
