#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/gradient_check.h"

namespace protrain::test::registry_test {
namespace {

using Integers = std::vector<std::int64_t>;

TEST(Registry, FindsEveryOperatorByName) {
  const std::vector<std::string_view> names = ops::names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (std::string_view name : names) {
    const ops::Op *op = ops::find(name);
    ASSERT_NE(op, nullptr) << name;
    EXPECT_EQ(op->name, name);
    EXPECT_NE(op->infer, nullptr) << name;
  }
  EXPECT_EQ(ops::find("NoSuchOperator"), nullptr);
  EXPECT_EQ(ops::find(""), nullptr);
}

TEST(Registry, NamesAnUnknownOperator) {
  Graph graph;
  EXPECT_EQ(code_of([&] { ops::infer(graph, {.op = "Fft", .name = "n"}); }), Code::unsupported);
}

TEST(Registry, NamesTheNodeInEveryError) {
  Graph graph;
  const ValueId x = graph.add_value({.name = "x", .type = {DType::f32, {2, 3}}, .origin = Origin::input});
  const std::vector<Node> wrong = {
      {.op = "Add", .name = "n", .inputs = {x}},
      {.op = "Transpose", .name = "n", .attributes = {{"perm", Integers{0, 5}}}, .inputs = {x}},
      {.op = "Expand", .name = "n", .attributes = {{"shape", Integers{-1}}}, .inputs = {x}},
      {.op = "Concat", .name = "n", .attributes = {{"axis", std::int64_t{9}}}, .inputs = {x}},
      {.op = "Gather", .name = "n", .inputs = {x, ValueId::none}}};
  for (const Node &node : wrong) {
    try {
      ops::infer(graph, node);
      ADD_FAILURE() << node.op << " was accepted";
    } catch (const Error &error) {
      EXPECT_EQ(error.subject, "n") << node.op << ": " << error.text;
    }
  }
}

TEST(Registry, CountsWorkAndTraffic) {
  Graph graph;
  const ValueId x = graph.add_value({.name = "x", .type = {DType::f32, {2, 3}}, .origin = Origin::input});
  graph.add_node({.op = "Exp", .name = "e", .inputs = {x}}, {"y"});
  graph.add_node({.op = "Reshape", .name = "r", .attributes = {{"shape", Integers{6}}}, .inputs = {x}}, {"z"});
  graph.value(graph.find("y")).type = {DType::f32, {2, 3}};
  graph.value(graph.find("z")).type = {DType::f32, {6}};
  EXPECT_EQ(ops::cost(graph, graph.nodes()[0]).bytes, 48);
  EXPECT_EQ(ops::cost(graph, graph.nodes()[0]).flops, 6);
  EXPECT_EQ(ops::cost(graph, graph.nodes()[1]).bytes, 0);
}

TEST(Interpret, RefusesAnInputWithoutAValue) {
  Graph graph;
  const ValueId x = graph.add_value({.name = "x", .type = {DType::f32, {2}}, .origin = Origin::input});
  graph.add_node({.op = "Exp", .name = "e", .inputs = {x}}, {"y"});
  EXPECT_EQ(code_of([&] { ops::interpret(graph, {}); }), Code::arg);
}

// A causal mask as an exporter writes it: positions, comparison, padding, -inf. Its cost must not grow with the batch.
TEST(Evaluate, FoldsACausalMaskAtAnyBatch) {
  const std::int64_t batch = 1 << 16, s = 257;
  const Array scalar = Array::from_integers({DType::i64, {}}, {0});
  const Array range =
      evaluate("Range", {},
               {scalar, Array::from_integers({DType::i64, {}}, {s}), Array::from_integers({DType::i64, {}}, {1})})[0];
  const Array keys = evaluate("Unsqueeze", {{"axes", Integers{0, 1, 2}}}, {range})[0];
  const Array queries = evaluate("Unsqueeze", {{"axes", Integers{0, 1, 3}}}, {range})[0];
  const Array visible = evaluate("LessOrEqual", {}, {keys, queries})[0];
  const Array wide = evaluate("Expand", {{"shape", Integers{batch, 1, s, s}}}, {visible})[0];
  const Array padding =
      evaluate("Cast", {{"to", std::string("bool")}}, {Array::filled({DType::i64, {batch, 1, 1, s}}, 1)})[0];
  const Array both = evaluate("And", {}, {wide, padding})[0];
  const Array mask =
      evaluate("Where", {}, {both, Array::scalar(DType::f32, 0), Array::scalar(DType::f32, -HUGE_VAL)})[0];
  EXPECT_EQ(mask.shape(), (Shape{batch, 1, s, s}));
  EXPECT_EQ(mask.stored(), (Shape{1, 1, s, s}));
  for (std::int64_t i = 0; i < s; ++i)
    for (std::int64_t j = 0; j < s; ++j)
      ASSERT_EQ(mask.stored_double(i * s + j), j <= i ? 0 : -HUGE_VAL) << i << ", " << j;
  const Array last =
      evaluate("Slice", {{"starts", Integers{-1}}, {"ends", Integers{INT64_MAX}}, {"axes", Integers{0}}}, {mask})[0];
  EXPECT_EQ(last.shape(), (Shape{1, 1, s, s}));
  EXPECT_EQ(last.stored_count(), s * s);
}

}  // namespace
}  // namespace protrain::test::registry_test
