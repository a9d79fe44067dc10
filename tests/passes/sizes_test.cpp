// Float initializers that give sizes are constants, whatever the file calls them.
#include "passes/parameters/sizes.h"

#include <set>

#include "errors.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::sizes_test {
namespace {

using passes::Finding;

// Resizes x (1, 2, 4, 4) by the initializer `scales`.
struct Resized {
  Resized() {
    const ValueId x = b.input("x", {1, 2, 4, 4}, DType::f32);
    scales = b.initializer("scales", {4}, DType::f32);
    made = resize({x, ValueId::none, scales});
  }
  ValueId resize(std::vector<ValueId> inputs) {
    graph::Node node;
    node.op = "Resize";
    node.name = "/Resize";
    node.attributes.set("mode", "nearest");
    node.inputs = std::move(inputs);
    return b.graph.node(b.graph.add_node(node, {"resized"})).outputs[0];
  }

  HandBuilt b;
  ValueId scales, made;
};

Array numbers(const std::string &name) {
  if (name == "scales") return Array::from_doubles({DType::f32, {4}}, {1, 1, 2, 2});
  if (name == "factor") return Array::from_doubles({DType::f32, {1}}, {2});
  fail(Code::internal, name, "is no size, and was loaded");
}

TEST(Sizes, ScalesOfResizeAreConstants) {
  Resized r;
  const ValueId w = r.b.initializer("w", {8}, DType::f32);
  graph::Node add;
  add.op = "Add";
  add.inputs = {r.made, w};
  r.b.graph.outputs = {r.b.graph.node(r.b.graph.add_node(add, {"y"})).outputs[0]};
  Graph &graph = r.b.graph;
  const std::vector<Finding> findings = passes::settle_sizes(graph, numbers);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].initializer, "scales");
  EXPECT_FALSE(findings[0].parameter);
  EXPECT_NE(findings[0].reason.find("Resize at /Resize"), std::string::npos) << findings[0].reason;
  EXPECT_EQ(graph.value(graph.find("w")).origin, Origin::initializer);
  passes::fold(graph);
  EXPECT_EQ(graph.value(graph.outputs[0]).type, (graph::Type{DType::f32, {1, 2, 8, 8}}));
}

// tf2onnx computes sizes from shapes: Cast(Shape(x)) * factor.
TEST(Sizes, AreFollowedThroughArithmetic) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3}, DType::f32), factor = b.initializer("factor", {1}, DType::f32);
  const ValueId shape = b.add("Cast", {b.add("Shape", {x})}, {{"to", "float32"}});
  const ValueId sizes = b.add("Cast", {b.add("Mul", {shape, factor})}, {{"to", "int64"}});
  graph::Node fill;
  fill.op = "ConstantOfShape";
  fill.inputs = {sizes};
  b.graph.outputs = {b.graph.node(b.graph.add_node(fill, {"filled"})).outputs[0]};
  EXPECT_EQ(passes::settle_sizes(b.graph, numbers).size(), 1u);
  passes::fold(b.graph);
  EXPECT_EQ(b.graph.value(b.graph.outputs[0]).type.shape, (Shape{4, 6}));
}

// tf2onnx writes the condition of a loop as a comparison of floats.
TEST(Sizes, AndConditionsAreConstants) {
  for (const char *op : {"If", "Loop"}) {
    HandBuilt b;
    const ValueId x = b.input("x", {2}, DType::f32);
    const ValueId first = b.initializer("first", {}, DType::f32), end = b.initializer("end", {}, DType::f32);
    const ValueId goes_on = b.add("And", {b.add("Less", {first, end}), b.add("Less", {first, end})});
    const ValueId start = b.add("Add", {x, b.add("Expand", {first}, {{"shape", Integers{2}}})});
    const bool loop = std::string(op) == "Loop";
    b.graph.add_node({.op = op, .inputs = loop ? std::vector{ValueId::none, goes_on, start} : std::vector{goes_on}},
                     {"out"});
    std::set<std::string> settled;
    const auto number = [](const std::string &name) { return Array::scalar(DType::f32, name == "end" ? 6 : 0); };
    for (const Finding &finding : passes::settle_sizes(b.graph, number)) settled.insert(finding.initializer);
    EXPECT_EQ(settled, (std::set<std::string>{"end", "first"})) << op;
  }
}

// Tools turn the start, end and step of a `torch.arange` into initializers. Between such an initializer and the Range
// there may be a CastLike, or a QuantizeLinear and a DequantizeLinear.
TEST(Sizes, AreFollowedThroughConversions) {
  HandBuilt b;
  const ValueId step = b.initializer("step", {}, DType::f32), scale = b.initializer("scale", {}, DType::f32);
  const ValueId integers = b.add("QuantizeLinear", {step, scale}, {{"output_dtype", "uint8"}});
  const ValueId rounded = b.add("DequantizeLinear", {integers, scale});
  const ValueId start = b.add("CastLike", {b.initializer("start", {}, DType::f32), rounded});
  const ValueId limit = b.initializer("limit", {}, DType::f32);
  graph::Node range;
  range.op = "Range";
  range.inputs = {start, limit, rounded};
  b.graph.outputs = {b.graph.node(b.graph.add_node(range, {"places"})).outputs[0]};
  const auto values = [](const std::string &name) {
    return Array::from_doubles({DType::f32, {}}, {name == "start" ? 0.0 : name == "limit" ? 3.0 : 1.0});
  };
  EXPECT_EQ(passes::settle_sizes(b.graph, values).size(), 4u);
  passes::fold(b.graph);
  EXPECT_EQ(b.graph.value(b.graph.outputs[0]).type.shape, (Shape{3}));
}

// A plan can be made without the weights of a model. Without them, the numbers in an initializer are unknown. So an
// initializer that gives sizes must stay an initializer.
TEST(Sizes, WithoutWeightsStayInitializers) {
  Resized r;
  r.b.graph.outputs = {r.made};
  const auto missing = [](const std::string &name) -> Array { fail(Code::io, name, "no such file"); };
  EXPECT_TRUE(passes::settle_sizes(r.b.graph, missing).empty());
  EXPECT_EQ(r.b.graph.value(r.scales).origin, Origin::initializer);
}

}  // namespace
}  // namespace protrain::test::sizes_test
