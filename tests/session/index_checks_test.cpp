#include "session/index_checks.h"

#include <gtest/gtest.h>

#include "errors.h"
#include "ops/op.h"

namespace protrain::session::index_checks_test {
namespace {

using graph::Array;
using graph::Graph;
using graph::Node;
using graph::Type;
using graph::ValueId;
using test::error_of;

// A graph under construction, whose inputs are indices.
class Model {
 public:
  ValueId input(const std::string &name, const Type &type) {
    graph.inputs.push_back(graph.add_value({.name = name, .type = type, .origin = graph::Origin::input}));
    return graph.inputs.back();
  }
  ValueId constant(const std::vector<std::int64_t> &values) { return graph.add_constant("c", Array::integers(values)); }
  ValueId floats(const Shape &shape) { return graph.add_constant("x", Array::filled({DType::f32, shape}, 1)); }
  ValueId add(const std::string &op, const std::vector<ValueId> &inputs, const graph::Attributes &attributes = {}) {
    Node node{.op = op, .name = op, .attributes = attributes, .inputs = inputs};
    const std::vector<Type> types = ops::infer(graph, node);
    const graph::NodeId id = graph.add_node(node, std::vector<std::string>(types.size(), "y"));
    for (std::size_t i = 0; i < types.size(); ++i) graph.value(graph.node(id).outputs[i]).type = types[i];
    return graph.node(id).outputs[0];
  }

  // The error for these values of the only input, or "".
  std::string refusal(const std::vector<std::int64_t> &values) const {
    const IndexChecks checks(graph, graph.inputs);
    const auto fault = checks.fault_in(0, values.data());
    return fault ? error_of([&] { checks.refuse(*fault); }).text : "";
  }

  Graph graph;
};

TEST(IndexChecks, KnowTheBlankAndTheLengthsOfTimesThatHaveNoLabels) {
  const graph::Attributes attributes = {{"blank", std::int64_t{2}}, {"ignore_index", std::int64_t{-100}}};
  Model labels, lengths;
  labels.add("CtcLoss", {labels.floats({2, 4, 5}), labels.input("labels", {DType::i64, {2, 2}})}, attributes);
  EXPECT_EQ(labels.refusal({0, 1, 4, -100}), "");
  EXPECT_EQ(labels.refusal({0, 1, 5, -100}),
            "input labels holds label 5 of row 2, which is outside 0..4 and not -100, the label to ignore");
  EXPECT_EQ(labels.refusal({0, 2, 4, -100}), "input labels holds label 2 of row 1, which is the blank");
  const ValueId spoken = lengths.graph.add_constant("labels", Array::from_integers({DType::i64, {2, 2}}, {0, 1, 3, 4}));
  lengths.add("CtcLoss", {lengths.floats({2, 4, 5}), spoken, lengths.input("lengths", {DType::i64, {2}})}, attributes);
  EXPECT_EQ(lengths.refusal({0, 4}), "");
  EXPECT_EQ(lengths.refusal({2, 5}), "input lengths holds length 5 for sample 1, which is outside 0..4");
}

TEST(IndexChecks, FollowLabelsThroughPaddingAndShifts) {
  Model model;
  const ValueId labels = model.input("labels", {DType::i64, {2, 3}});
  const ValueId padded = model.add(
      "Pad", {labels}, {{"pads", std::vector<std::int64_t>{0, 0, 0, 1}}, {"value", std::vector<std::int64_t>{-100}}});
  const ValueId shifted = model.add("Slice", {padded},
                                    {{"starts", std::vector<std::int64_t>{1}},
                                     {"ends", std::vector<std::int64_t>{4}},
                                     {"axes", std::vector<std::int64_t>{1}}});
  const ValueId flat = model.add("Reshape", {shifted}, {{"shape", std::vector<std::int64_t>{6}}});
  model.add("CrossEntropy", {model.floats({6, 8}), flat}, {{"ignore_index", std::int64_t{-100}}});
  EXPECT_EQ(model.refusal({0, 7, 0, 0, -100, 0}), "");
  EXPECT_EQ(model.refusal({99, 0, 0, 0, 0, 0}), "") << "nobody reads the first label of a sequence";
  EXPECT_EQ(model.refusal({0, 0, 8, 0, 0, 0}),
            "input labels holds label 8 of row 1, which is outside 0..7 and not -100, the label to ignore");
  EXPECT_EQ(model.refusal({0, 0, 0, 0, -1, 0}),
            "input labels holds label -1 of row 3, which is outside 0..7 and not -100, the label to ignore");
}

TEST(IndexChecks, FollowIndicesThroughTransposesAndConcatenations) {
  Model model;
  const ValueId tokens = model.input("tokens", {DType::i64, {2, 2}});
  const ValueId turned = model.add("Transpose", {tokens}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const ValueId row = model.add("Reshape", {turned}, {{"shape", std::vector<std::int64_t>{4}}});
  const ValueId joined = model.add("Concat", {row, model.constant({4})}, {{"axis", std::int64_t{0}}});
  model.add("Gather", {model.floats({3, 5}), joined}, {{"axis", std::int64_t{1}}});
  EXPECT_EQ(model.refusal({0, 4, -5, 1}), "");
  EXPECT_EQ(model.refusal({0, 5, 0, 0}), "input tokens holds 5, but x has 5 entries: index 5 is outside 0..4");
  EXPECT_EQ(model.refusal({0, 0, -6, 0}), "input tokens holds -6, but x has 5 entries: index -6 is outside 0..4");
}

// IndexChecks numbers the elements of inputs, and follows these numbers through the graph. A constant or a padding in
// the file can have any value. This value must not be taken for an element's number, because that element could lie far
// beyond the input's end.
TEST(IndexChecks, TakeNoConstantForAnElementOfAnInput) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  const graph::Attributes last = {{"starts", std::vector<std::int64_t>{2}},
                                  {"ends", std::vector<std::int64_t>{3}},
                                  {"axes", std::vector<std::int64_t>{0}}};
  Model joined, padded;
  const ValueId ids = joined.input("ids", {DType::i64, {2}});
  const ValueId longer = joined.add("Concat", {ids, joined.constant({kLarge})}, {{"axis", std::int64_t{0}}});
  joined.add("Gather", {joined.floats({4, 3}), joined.add("Slice", {longer}, last)});
  const ValueId wider =
      padded.add("Pad", {padded.input("ids", {DType::i64, {2}})},
                 {{"pads", std::vector<std::int64_t>{0, 1}}, {"value", std::vector<std::int64_t>{kLarge}}});
  padded.add("Gather", {padded.floats({4, 3}), padded.add("Slice", {wider}, last)});
  EXPECT_EQ(joined.refusal({4, 4}), "") << "the node reads only the constant";
  EXPECT_EQ(padded.refusal({4, 4}), "") << "the node reads only the padding";
}

TEST(IndexChecks, LeaveComputedIndicesToTheKernels) {
  Model model;
  const ValueId tokens = model.input("tokens", {DType::i64, {2}});
  const ValueId sum = model.add("Add", {tokens, model.constant({1, 1})});
  model.add("Gather", {model.floats({3}), sum}, {{"axis", std::int64_t{0}}});
  EXPECT_EQ(model.refusal({7, 7}), "");
}

TEST(IndexChecks, FollowOnlySoManyElementsInAll) {
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<std::int64_t> values(kCount);
  values[5] = 3;
  for (const int moves : {4, 20}) {
    Model model;
    ValueId moved = model.input("ids", {DType::i64, {kCount}});
    for (int i = 0; i < moves; ++i)
      moved = model.add("Reshape", {moved}, {{"shape", std::vector<std::int64_t>{kCount}}});
    model.add("Gather", {model.floats({3}), moved});
    EXPECT_EQ(model.refusal(values),
              moves == 4 ? "input ids holds 3, but x has 3 entries: index 3 is outside 0..2" : "");
  }
}

TEST(IndexChecks, ReadNarrowIndicesAtAnyAddress) {
  Model model;
  const ValueId tokens = model.input("tokens", {DType::i32, {2}});
  model.add("Gather", {model.floats({3}), model.add("Cast", {tokens}, {{"to", std::string("int64")}})},
            {{"axis", std::int64_t{0}}});
  const IndexChecks checks(model.graph, model.graph.inputs);
  alignas(4) char bytes[9] = {};
  bytes[5] = 3;  // element 1 of the values that begin at byte 1
  EXPECT_EQ(checks.fault_in(0, bytes + 1)->value, 3);
  bytes[5] = 2;
  EXPECT_FALSE(checks.fault_in(0, bytes + 1));
}

}  // namespace
}  // namespace protrain::session::index_checks_test
