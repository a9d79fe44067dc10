// Compares kernels with their references in random forms: sizes that fill no vector, tile or block, and every mix of
// attributes. NaNs lie behind each operand, so a kernel that uses bytes beyond it gives a wrong result. The variable
// PROTRAIN_FORMS says how many forms each test draws.
#include <random>

#include "asked.h"
#include "conformance/contest.h"
#include "kernel_nodes.h"
#include "recurrent_nodes.h"

namespace protrain::test::random_forms_test {
namespace {

PROTRAIN_FAMILY(RandomForms);

int count_of_forms() { return static_cast<int>(asked("PROTRAIN_FORMS", 6)); }

class Draw {
 public:
  explicit Draw(int number) : random_(static_cast<unsigned>(number)) {}
  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool yes() { return from(0, 1) == 1; }
  // A size of up to `most`. Small sizes are as frequent as large ones.
  std::int64_t size(std::int64_t most) {
    const std::int64_t bound = std::min(most, std::int64_t{1} << from(0, 9));
    return from(1, bound);
  }
  unsigned seed() { return static_cast<unsigned>(random_()); }

 private:
  std::mt19937 random_;
};

Shape swapped(Shape shape, bool yes) {
  if (yes) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

TEST_P(RandomForms, OfProducts) {
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    const std::int64_t m = draw.size(200), n = draw.size(200), k = draw.size(300),
                       batch = draw.yes() ? draw.size(4) : 0;
    const bool trans_a = draw.yes(), trans_b = draw.yes(), shared = draw.yes();
    Shape a = swapped({m, k}, trans_a), b = swapped({k, n}, trans_b);
    if (batch > 0) a.insert(a.begin(), batch);
    if (batch > 0 && !shared) b.insert(b.begin(), batch);
    const double scale = 1 / std::sqrt(static_cast<double>(k));
    OneNode one{"MatMul",
                {{"trans_a", std::int64_t{trans_a}}, {"trans_b", std::int64_t{trans_b}}},
                {random_floats(a, draw.seed()), random_floats(b, draw.seed(), -scale, scale)}};
    if (draw.yes()) one.inputs.push_back(random_floats({n}, draw.seed()));
    SCOPED_TRACE(i);
    expect_reference(one, 1e-5);
  }
}

TEST_P(RandomForms, OfAttention) {
  const bool is_slow = GetParam()->name == "emulated";
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    const std::int64_t kv_heads = draw.from(1, 3), most = is_slow ? 40 : 200;
    const AttentionSizes sizes = {
        draw.from(1, 2), draw.size(most),      draw.size(most),     kv_heads * draw.from(1, 3),
        kv_heads,        8 * draw.from(1, 10), 8 * draw.from(1, 10)};
    OneNode node =
        forward(sizes, form(draw.from(0, 1), draw.yes() ? draw.size(most) : 0, draw.yes() ? 1.5 : 0, 0.1), draw.seed());
    if (draw.yes())
      node.inputs.push_back(random_floats(
          {draw.yes() ? sizes.batch : 1, draw.yes() ? sizes.heads : 1, draw.yes() ? sizes.queries : 1, sizes.keys},
          draw.seed()));
    SCOPED_TRACE(i);
    expect_reference(node, 1e-5);
    expect_reference(backward(node, draw.seed()), 0.1);  // narrow types round the probabilities
  }
}

TEST_P(RandomForms, OfPools) {
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    Shape x = {draw.size(3), draw.size(20)};
    std::vector<std::int64_t> kernel, strides, dilations, pads, behind;
    for (std::int64_t axes = draw.from(1, 3); axes > 0; --axes) {
      kernel.push_back(draw.from(1, 4));
      strides.push_back(draw.from(1, 4));
      dilations.push_back(draw.from(1, 2));
      pads.push_back(draw.from(0, kernel.back() - 1));
      behind.push_back(draw.from(0, kernel.back() - 1));
      x.push_back((kernel.back() - 1) * dilations.back() + draw.size(20));
    }
    pads.insert(pads.end(), behind.begin(), behind.end());
    Attributes attributes = {{"kernel_shape", kernel},
                             {"strides", strides},
                             {"dilations", dilations},
                             {"pads", pads},
                             {"ceil_mode", draw.from(0, 1)}};
    SCOPED_TRACE(i);
    const OneNode largest{"MaxPool", attributes, {random_floats(x, draw.seed())}};
    expect_reference(largest, 1e-6);
    const Array dy = random_floats(reference(largest)[0].shape(), draw.seed());
    expect_reference({"MaxPoolGrad", attributes, {dy, largest.inputs[0]}}, 1e-5);
    attributes.set("count_include_pad", draw.from(0, 1));
    expect_reference({"AveragePool", attributes, largest.inputs}, 1e-5);
    attributes.set("shape", x);
    expect_reference({"AveragePoolGrad", attributes, {dy}}, 1e-5);
  }
}

TEST_P(RandomForms, OfRecurrentLayers) {
  const auto forms = recurrent_forms();
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    const auto &[op, attributes] = forms[static_cast<std::size_t>(draw.from(0, std::int64_t(forms.size()) - 1))];
    OneNode node = recurrent(op, {draw.size(6), draw.size(20), draw.size(70)}, attributes, draw.seed());
    for (std::size_t input = 1; input < 3; ++input)
      node.inputs[input] = random_floats(node.inputs[input].shape(), draw.seed(), -0.2, 0.2);
    SCOPED_TRACE(i);
    expect_reference(node, 1e-5);
    expect_reference(recurrent_gradient(node, draw.seed()), 2e-5);
  }
}

TEST_P(RandomForms, OfLosses) {
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    const std::int64_t rows = draw.size(200), classes = draw.size(500), depth = draw.size(100);
    const bool trans_w = draw.yes(), bias = draw.yes();
    Attributes attributes = {{"reduction", std::string(draw.yes() ? "mean" : "sum")},
                             {"ignore_index", std::int64_t{0}},
                             {"label_smoothing", draw.yes() ? 0.2 : 0.0},
                             {"z_loss", draw.yes() ? 0.01 : 0.0}};
    const Array labels = random_integers({rows}, draw.seed(), 0, classes);
    const Array logits = random_floats({rows, classes}, draw.seed(), -4, 4);
    const OneNode node{"CrossEntropy", attributes, {logits, labels}, {true, true}};
    SCOPED_TRACE(i);
    const double most = 1e-5 * static_cast<double>(rows);  // sums of rows are as long
    expect_reference(node, most);
    const std::vector<Array> results = reference(node);
    expect_reference({"CrossEntropyGrad", attributes, {Array::scalar(DType::f32, 1), logits, labels, results[1]}},
                     1e-5);

    attributes.set("trans_w", std::int64_t{trans_w});
    OneNode linear{"LinearCrossEntropyGrad",
                   attributes,
                   {random_floats({rows, depth}, draw.seed()),
                    random_floats(swapped({depth, classes}, trans_w), draw.seed(), -0.3, 0.3), labels},
                   {true, true, true}};
    if (bias) linear.inputs.push_back(random_floats({classes}, draw.seed())), linear.outputs.push_back(true);
    expect_reference(linear, std::max(most, 0.05));  // narrow types round the gradients of logits
  }
}

TEST_P(RandomForms, OfNormalizations) {
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    const Shape x = {draw.size(5), draw.size(30), draw.size(400) + 1};
    const std::int64_t axis = draw.from(1, 2);
    const Shape scaled(x.begin() + axis, x.end());
    const Attributes attributes = {{"axis", axis}, {"epsilon", 1e-3}};
    SCOPED_TRACE(i);
    for (const char *op : {"LayerNormalization", "RMSNormalization"}) {
      const bool centers = std::string_view(op) == "LayerNormalization";
      OneNode node{op, attributes, {random_floats(x, draw.seed(), -2, 3), random_floats(scaled, draw.seed(), 0.5, 2)}};
      if (centers && draw.yes()) node.inputs.push_back(random_floats(scaled, draw.seed()));
      node.outputs.assign(centers ? 3 : 2, true);
      expect_reference(node, 5e-5);
      const std::vector<Array> made = reference(node);
      OneNode gradient{
          std::string(op) + "Grad", attributes, {random_floats(x, draw.seed()), node.inputs[0], node.inputs[1]}};
      gradient.inputs.insert(gradient.inputs.end(), made.begin() + 1, made.end());
      gradient.outputs.assign(types_of_all_outputs(gradient).size(), true);
      expect_reference(gradient, 2e-4);
    }
  }
}

TEST_P(RandomForms, OfReductionsAndSoftmax) {
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    Shape shape;
    std::vector<std::int64_t> axes;
    for (std::int64_t axis = 0, rank = draw.from(1, 4); axis < rank; ++axis) {
      shape.push_back(draw.size(60));
      if (draw.yes()) axes.push_back(axis);
    }
    const Array x = random_floats(shape, draw.seed(), -3, 3);
    SCOPED_TRACE(i);
    for (const char *op : {"ReduceSum", "ReduceMean", "ReduceMax"})
      if (!axes.empty()) expect_reference({op, {{"axes", axes}, {"keepdims", draw.from(0, 1)}}, {x}}, 5e-5);
    const Attributes along = {{"axis", draw.from(0, std::int64_t(shape.size()) - 1)}};
    for (const std::string op : {"Softmax", "LogSoftmax"}) {
      expect_reference({op, along, {x}}, 1e-5);
      expect_reference({op + "Grad", along, {random_floats(shape, draw.seed()), reference({op, along, {x}})[0]}}, 5e-5);
    }
  }
}

TEST_P(RandomForms, OfMovements) {
  for (int i = 0; i < count_of_forms(); ++i) {
    Draw draw(i);
    Shape shape;
    std::vector<std::int64_t> order;
    for (std::int64_t axis = 0, rank = draw.from(1, 4); axis < rank; ++axis) {
      shape.push_back(draw.size(50));
      order.insert(order.begin() + draw.from(0, axis), axis);
    }
    const Array x = random_floats(shape, draw.seed());
    SCOPED_TRACE(i);
    expect_reference({"Transpose", {{"perm", order}}, {x}}, 0);
    const std::int64_t axis = draw.from(0, std::int64_t(shape.size()) - 1);
    Shape more = shape;
    more[static_cast<std::size_t>(axis)] = draw.size(20);
    expect_reference({"Concat", {{"axis", axis}}, {x, random_floats(more, draw.seed()), x}}, 0);
    const Array places =
        random_integers({draw.size(30), draw.size(3)}, draw.seed(), 0, shape[static_cast<std::size_t>(axis)]);
    expect_reference({"Gather", {{"axis", axis}}, {x, places}}, 0);
  }
}

}  // namespace
}  // namespace protrain::test::random_forms_test
