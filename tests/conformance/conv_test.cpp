// Compares the kernels of convolutions with their reference.
#include <random>

#include "conformance/contest.h"

namespace protrain::test::conv_test {
namespace {

PROTRAIN_FAMILY(ConvKernel);

using Integers = std::vector<std::int64_t>;

// A convolution x (N, C, d...), w (M, C / groups, k...) -> y.
struct Form {
  Shape x, w;
  Integers strides, dilations, pads;
  std::int64_t groups = 1;

  Attributes attributes() const {
    return {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", groups}};
  }
};

Integers reached(const Form &f) {  // elements of each axis that windows reach, with the pads
  Integers output, reach;
  for (std::size_t i = 0; i < f.strides.size(); ++i) {
    const std::int64_t extent = (f.w[i + 2] - 1) * f.dilations[i] + 1;
    const std::int64_t padded = f.x[i + 2] + f.pads[i] + f.pads[i + f.strides.size()];
    reach.push_back((padded - extent) / f.strides[i] * f.strides[i] + extent);
  }
  return reach;
}

// The attributes of the ConvTranspose that computes the gradient of x.
Attributes transposed(const Form &f) {
  Attributes attributes = f.attributes();
  Integers beyond, pads = f.pads;
  const std::size_t axes = f.strides.size();
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t rest = f.x[i + 2] + f.pads[i] - reached(f)[i];
    beyond.push_back(std::max<std::int64_t>(0, rest));
    pads[axes + i] = std::max<std::int64_t>(0, -rest);
  }
  attributes.set("output_padding", beyond);
  attributes.set("pads", pads);
  return attributes;
}

// The convolution and both gradients, with and without a bias.
void expect_form(const Conformance &backend, const Form &f, unsigned seed) {
  const double scale = 1 / std::sqrt(static_cast<double>(element_count({f.w.begin() + 1, f.w.end()})));
  const Array x = random_floats(f.x, seed), w = random_floats(f.w, seed + 1, -scale, scale);
  Attributes of_weights = f.attributes();
  of_weights.set("kernel_shape", Integers(f.w.begin() + 2, f.w.end()));
  for (bool bias : {false, true}) {
    OneNode conv{"Conv", f.attributes(), {x, w}};
    if (bias) conv.inputs.push_back(random_floats({f.w[0]}, seed + 2));
    backend.expect_reference(conv, 1e-5);
    const Array dy = random_floats(reference(conv)[0].shape(), seed + 3);
    OneNode data{"ConvTranspose", transposed(f), {dy, w}};
    if (bias) data.inputs.push_back(random_floats({f.x[1]}, seed + 4));
    EXPECT_EQ(infer(data)[0].shape, f.x);
    backend.expect_reference(data, 1e-5);
    if (bias) continue;
    const double terms = static_cast<double>(element_count(dy.shape()) / f.w[0]);  // of a weight's gradient
    const Array small = random_floats(dy.shape(), seed + 5, -1 / std::sqrt(terms), 1 / std::sqrt(terms));
    backend.expect_reference({"ConvWeightGrad", of_weights, {x, small}}, 1e-5);
  }
}

TEST_P(ConvKernel, IsTheReferenceInEveryForm) {
  const std::vector<Form> forms = {
      {{2, 3, 9, 11}, {5, 3, 3, 2}, {1, 1}, {1, 1}, {1, 0, 1, 1}},
      {{3, 16, 7, 7}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {{2, 16, 9, 8}, {16, 16, 3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
      {{2, 32, 5, 6}, {16, 32, 1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
      {{2, 16, 8, 8}, {24, 16, 1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
      {{1, 16, 12, 10}, {16, 16, 3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}},
      {{2, 3, 14, 14}, {16, 3, 7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}},
      {{2, 3, 12, 12}, {8, 3, 4, 4}, {4, 4}, {1, 1}, {0, 0, 0, 0}},
      {{1, 2, 5, 4}, {3, 2, 1, 3}, {2, 3}, {1, 1}, {0, 4, 0, 0}},
  };
  unsigned seed = 0;
  for (const Form &form : forms) expect_form(*this, form, seed += 10);
}

TEST_P(ConvKernel, IsTheReferenceInGroups) {
  const std::vector<Form> forms = {
      {{2, 6, 5, 6}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 2},
      {{2, 32, 6, 6}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 2},
      {{2, 16, 9, 10}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 16},
      {{2, 24, 9, 11}, {24, 1, 5, 3}, {2, 2}, {1, 1}, {2, 1, 2, 1}, 24},
      {{1, 5, 8, 7}, {10, 1, 3, 3}, {1, 2}, {2, 1}, {1, 0, 2, 2}, 5},
  };
  unsigned seed = 200;
  for (const Form &form : forms) expect_form(*this, form, seed += 10);
}

TEST_P(ConvKernel, IsTheReferenceOverOneAndThreeAxes) {
  const std::vector<Form> forms = {
      {{3, 5, 13}, {7, 5, 3}, {1}, {1}, {1, 1}},
      {{2, 16, 20}, {16, 16, 5}, {2}, {2}, {4, 3}},
      {{2, 16, 17}, {16, 1, 7}, {1}, {1}, {3, 3}, 16},
      {{2, 3, 4, 5, 6}, {4, 3, 2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 0, 0, 1, 1}},
      {{1, 16, 4, 4, 5}, {16, 16, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
      {{2, 4, 3, 5, 6}, {4, 1, 3, 2, 3}, {1, 1, 2}, {1, 1, 1}, {1, 0, 1, 1, 1, 1}, 4},
  };
  unsigned seed = 400;
  for (const Form &form : forms) expect_form(*this, form, seed += 10);
}

// Small forms of every kind: one to three axes, groups, maps and channels that fill no vector, strides, dilations,
// pads.
Form drawn_form(std::mt19937 &random) {
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<unsigned>(most - least + 1));
  };
  Form f;
  f.groups = draw(0, 2) == 0 ? draw(2, 4) : 1;
  const std::int64_t channels = draw(1, 20) * (draw(0, 1) == 0 ? 1 : 8) / f.groups + 1;
  f.x = {draw(1, 3), channels * f.groups};
  f.w = {draw(1, 40) / f.groups * f.groups + f.groups, channels};
  Integers after;
  for (std::int64_t axis = draw(1, 3); axis > 0; --axis) {
    const std::int64_t size = draw(1, 4), dilation = draw(1, 2), extent = (size - 1) * dilation + 1;
    const std::int64_t before = draw(0, extent - 1);
    f.w.push_back(size);
    f.strides.push_back(draw(1, 3));
    f.dilations.push_back(dilation);
    f.pads.push_back(before);
    after.push_back(draw(0, extent - 1));
    f.x.push_back(std::max<std::int64_t>(1, extent - before - after.back()) + draw(0, 7));
  }
  f.pads.insert(f.pads.end(), after.begin(), after.end());
  return f;
}

TEST_P(ConvKernel, IsTheReferenceInRandomForms) {
  std::mt19937 random(1);
  for (unsigned i = 0; i < 12; ++i) {
    const Form form = drawn_form(random);
    SCOPED_TRACE(to_text(form.x) + " * " + to_text(form.w));
    expect_form(*this, form, 1000 + 10 * i);
  }
}

// oneDNN 2.6 computes the gradients of these weights wrongly: the first in every type, the others in bfloat16.
TEST_P(ConvKernel, IsTheReferenceWhereOneDnnIsFaulty) {
  const std::vector<Form> forms = {
      {{1, 16, 5, 2, 2}, {16, 16, 7, 1, 1}, {2, 1, 1}, {1, 1, 1}, {3, 0, 0, 3, 0, 0}},
      {{3, 41, 3, 5, 3}, {13, 41, 2, 4, 1}, {3, 3, 1}, {1, 1, 1}, {1, 0, 0, 1, 0, 0}},
      {{2, 129, 1}, {30, 129, 2}, {2}, {1}, {1, 0}},
      {{1, 3, 2, 1}, {16, 3, 1, 1}, {1, 2}, {1, 1}, {0, 0, 0, 0}},
  };
  unsigned seed = 900;
  for (const Form &form : forms) expect_form(*this, form, seed += 10);
}

// In each form the windows spread over many more places than x has elements. In the first form there are up to 2^64
// places, and the product of the strides overflows to 0.
TEST_P(ConvKernel, IsTheReferenceWhereNearlyAllPlacesAreSkippedOrPads) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  const std::vector<Form> forms = {
      {{1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {kFar, kFar, 16}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, 2},
      {{2, 2, 3, 4}, {2, 1, 1, 1}, {1 << 15, 1 << 15}, {1, 1}, {0, 0, 0, 0}, 2},
      {{2, 2, 2, 3}, {2, 1, 1, 1}, {kFar, kFar}, {1, 1}, {kFar, kFar, 0, 0}, 2},
      {{1, 2, 2, 2, 2}, {2, 1, 2, 2, 2}, {1, 1, 1}, {kFar, kFar, kFar}, {kFar, kFar, kFar, 0, 0, 0}, 2},
      {{2, 2, 3, 4}, {3, 2, 1, 1}, {kFar, kFar}, {1, 1}, {0, 0, 0, 0}},
      {{2, 2, 2, 3}, {4, 2, 1, 1}, {kFar, kFar}, {1, 1}, {kFar, kFar, 0, 0}},
  };
  unsigned seed = 700;
  for (const Form &form : forms) expect_form(*this, form, seed += 10);
}

// cuBLASLt may refuse a batch of so many products.
TEST_P(ConvKernel, IsTheReferenceForManyThousandsOfSamples) {
  const Form form = {{70000, 2, 2}, {3, 2, 1}, {1}, {1}, {0, 0}};
  const Array w = random_floats(form.w, 800);
  for (bool bias : {false, true}) {
    OneNode conv{"Conv", form.attributes(), {random_floats(form.x, 801), w}};
    OneNode data{"ConvTranspose", transposed(form), {random_floats({70000, 3, 2}, 802), w}};
    if (bias) conv.inputs.push_back(random_floats({3}, 803));
    if (bias) data.inputs.push_back(random_floats({2}, 804));
    expect_reference(conv);
    expect_reference(data);
  }
}

// These layers are so large that the CPU computes some of their results in parts. With oneDNN, the members of the team
// compute different parts of the first layer's gradients. The gradient of the second layer's weights is computed for
// each of the two samples alone, and the two results are added.
TEST_P(ConvKernel, IsTheReferenceAtAModelsSize) {
  if (GetParam()->name == "emulated") GTEST_SKIP() << "takes long";
  expect_form(*this, {{2, 64, 14, 14}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, 600);
  expect_form(*this, {{2, 16, 130, 128}, {16, 16, 1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}}, 610);
  expect_form(*this, {{3, 128, 14, 14}, {64, 32, 3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 4}, 620);
}

}  // namespace
}  // namespace protrain::test::conv_test
