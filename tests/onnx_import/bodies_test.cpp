// The bodies of control flow nodes: what they read from outside, their constants and their weights.
#include "fixtures.h"
#include "onnx_import/wire.h"

namespace protrain::onnx_import::bodies_test {
namespace {

using graph::Origin;
using graph::ValueId;
using test::body_attribute;
using test::field;
using test::floats;
using test::kFloat;
using test::Names;
using test::node;
using test::Scratch;
using test::tensor_attribute;
using test::Wire;

// A model y = If(c, then_branch, else_branch), which also computes n = -x for the branches.
Wire branching(const std::string &then_branch, const std::string &else_branch) {
  Wire wire;
  wire.inputs.push_back(test::value("c", test::kBool, {}));
  wire.nodes = {node("Neg", {"x"}, {"n"}), node("If", {"c"}, {"y"}, {then_branch, else_branch})};
  return wire;
}

std::string then(const Names &nodes, const Names &outputs, const Names &initializers = {}) {
  return body_attribute("then_branch", {}, nodes, outputs, initializers);
}
std::string otherwise(const Names &nodes, const Names &outputs, const Names &initializers = {}) {
  return body_attribute("else_branch", {}, nodes, outputs, initializers);
}

class Bodies : public testing::Test {
 protected:
  std::unique_ptr<Model> open(const Wire &wire) { return test::open_bytes(scratch_, wire.bytes()); }
  Error error(const Wire &wire) {
    return test::error_of([&] { open(wire); });
  }

  Scratch scratch_;
};

std::vector<std::string> names_of(const graph::Graph &graph, const std::vector<ValueId> &ids) {
  std::vector<std::string> names;
  for (const ValueId id : ids) names.push_back(graph.value(id).name);
  return names;
}

TEST_F(Bodies, ReadTheValuesAroundThem) {
  const auto model = open(branching(then({node("MatMul", {"n", "w"}, {"a"})}, {"a"}),
                                    otherwise({node("MatMul", {"x", "w"}, {"b"})}, {"b"})));
  const graph::Graph graph = model->graph({});
  const graph::Node &branch = graph.nodes()[1];
  EXPECT_EQ(names_of(graph, branch.inputs), (Names{"c", "x", "w", "n", "w"})) << "those of else_branch come first";
  const graph::Body &other = model->bodies().at(static_cast<std::size_t>(branch.attributes.integer("else_branch", -1)));
  EXPECT_EQ(other.own, 0u);
  EXPECT_EQ(names_of(other.graph, other.graph.inputs), (Names{"x", "w"}));
  EXPECT_EQ(other.graph.value(other.graph.inputs[1]).origin, Origin::initializer);
}

TEST_F(Bodies, PassValuesOnToThoseInsideThem) {
  const std::string inner = node(
      "If", {"c"}, {"b"}, {then({node("Neg", {"n"}, {"d"})}, {"d"}), otherwise({node("Neg", {"a"}, {"d"})}, {"d"})});
  const auto model =
      open(branching(then({node("Abs", {"x"}, {"a"}), inner}, {"b"}), otherwise({node("Abs", {"x"}, {"a"})}, {"a"})));
  const graph::Graph graph = model->graph({});
  ASSERT_EQ(model->bodies().size(), 4u);
  const std::vector<ValueId> &inputs = graph.nodes()[1].inputs;
  EXPECT_EQ(names_of(graph, {inputs.begin() + 2, inputs.end()}), (Names{"x", "c", "n"}));
}

// The library moves an initializer of a body, such as k, to the initializers of the model. The initializer z cannot
// move, because a branch returns z, and ONNX Runtime refuses a body that returns a value from outside. So z stays in
// the branch, and is a constant.
TEST_F(Bodies, KeepAnInitializerThatTheyReturn) {
  const std::vector<float> zeros(6, 0);
  const auto model = open(branching(then({}, {"z"}, {floats("z", {2, 3}, zeros)}),
                                    otherwise({node("Add", {"x", "k"}, {"a"})}, {"a"}, {floats("k", {2, 3}, zeros)})));
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.value(graph.find("k")).origin, Origin::initializer);
  EXPECT_EQ(graph.value(graph.find("z")).origin, Origin::constant);
}

TEST_F(Bodies, HaveTheirConstantsInTheMainGraph) {
  const std::string constant =
      node("Constant", {}, {"k"}, {tensor_attribute("value", floats("", {2, 3}, {1, 2, 3, 4, 5, 6}))});
  const auto model =
      open(branching(then({constant, node("Add", {"x", "k"}, {"a"})}, {"a"}),
                     otherwise({constant, node("Add", {"x", "s"}, {"a"})}, {"a"},
                               {test::tensor("s", test::kInt64, {1}, test::raw_data(test::raw<std::int64_t>({7}))),
                                floats("t", {1}, {2})})));
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(graph.value(graph.find("k")).array.doubles().at(5), 6);
  EXPECT_EQ(graph.value(graph.find("s")).array.integers(), std::vector<std::int64_t>{7});
  EXPECT_EQ(graph.find("t"), ValueId::none) << "nothing reads it";
}

TEST_F(Bodies, HaveTheirWeightsInTheMainGraphUnderNamesOfTheirOwn) {
  const auto weight = [](float first) { return floats("w", {3, 4}, {first, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}); };
  Wire wire = branching(then({node("MatMul", {"x", "w"}, {"a"})}, {"a"}, {weight(-1)}),
                        otherwise({node("MatMul", {"x", "w"}, {"b"})}, {"b"}, {weight(-2)}));
  const auto model = open(wire);
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(names_of(graph, graph.nodes()[1].inputs), (Names{"c", "x", "w_2", "x", "w_1"}));
  EXPECT_EQ(model->load("w_1").doubles()[0], -1);
  EXPECT_EQ(model->load("w_2").doubles()[0], -2);
  wire.initializers.clear();
  wire.nodes[1] = node("If", {"c"}, {"y"},
                       {then({node("MatMul", {"x", "v"}, {"a"})}, {"a"}, {floats("v", {3, 1}, {1, 2, 3})}),
                        otherwise({node("Abs", {"x"}, {"b"})}, {"b"})});
  EXPECT_EQ(open(wire)->load("v").doubles()[2], 3) << "the only one of its name keeps it";
}

// Each branch has a weight w, which moves to the model under a new name. In the first branch, two inner bodies make p
// and q. The body that makes p computes a value w of its own and must read this value. The body that makes q must read
// the branch's weight.
TEST_F(Bodies, HideTheWeightsAroundThemIfTheyDefineTheName) {
  const std::string weight = floats("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string sum = node("Add", {"x", "w"}, {"d"});
  const auto inside = [&](const std::string &result, const Names &nodes) {
    return node("If", {"c"}, {result}, {then(nodes, {"d"}), otherwise({node("Neg", {"x"}, {"d"})}, {"d"})});
  };
  const auto model = open(branching(
      then({inside("p", {node("Abs", {"x"}, {"w"}), sum}), inside("q", {sum}), node("Add", {"p", "q"}, {"a"})}, {"a"},
           {weight}),
      otherwise({node("Add", {"x", "w"}, {"b"})}, {"b"}, {weight})));
  const graph::Graph graph = model->graph({});
  EXPECT_EQ(names_of(graph, graph.nodes()[1].inputs), (Names{"c", "x", "w_2", "c", "x", "w_1"}));
}

TEST_F(Bodies, AreSavedWithAllTheirParts) {
  std::vector<float> large(600, 0.5f);
  const std::string constant = node("Constant", {}, {"k"}, {tensor_attribute("value", floats("", {2, 300}, large))});
  std::vector<std::int64_t> numbers(400, 3);
  const std::string counts = test::tensor("s", test::kInt64, {400}, test::raw_data(test::raw(numbers)));
  const auto model = open(branching(then({constant, node("MatMul", {"x", "v"}, {"p"}), node("Add", {"p", "k"}, {"a"})},
                                         {"a"}, {floats("v", {3, 300}, std::vector<float>(900, 2))}),
                                    otherwise({node("Gather", {"w", "s"}, {"b"})}, {"b"}, {counts})));
  model->save(scratch_ / "out.onnx", [](const std::string &name, std::byte *out) {
    if (name != "v") return false;
    const float trained = 9;
    std::memcpy(out, &trained, sizeof trained);
    return true;
  });
  const auto again = Model::open(scratch_ / "out.onnx");
  const graph::Graph before = model->graph({}), after = again->graph({});
  EXPECT_EQ(after.print(), before.print());
  EXPECT_TRUE(after.value(after.find("k")).array.same_as(before.value(before.find("k")).array));
  EXPECT_TRUE(after.value(after.find("s")).array.same_as(before.value(before.find("s")).array));
  EXPECT_EQ(again->load("v").doubles()[0], 9);
}

TEST_F(Bodies, OfFunctionsHaveTheCallsNames) {
  const std::string inner = node("If", {"p"}, {"b"},
                                 {then({node("Twice", {"a"}, {"d"}) + field(7, "own")}, {"d"}),
                                  otherwise({node("Neg", {"a"}, {"a_out"})}, {"a_out"})});
  const auto function = [](const std::string &name, const Names &inputs, const Names &nodes) {
    std::string out =
        field(1, name) + field(10, "own") + field(9, field(2, 18)) + field(9, field(1, "own") + field(2, 1));
    for (const std::string &input : inputs) out += field(4, input);
    out += field(5, "b");
    for (const std::string &one : nodes) out += field(7, one);
    return field(25, out);
  };
  Wire wire;
  wire.inputs.push_back(test::value("c", test::kBool, {}));
  wire.opset += field(8, field(1, "own") + field(2, 1));
  wire.tail = function("Choose", {"p", "a"}, {inner}) + function("Twice", {"a"}, {node("Add", {"a", "a"}, {"b"})});
  wire.nodes = {node("Choose", {"c", "x"}, {"y"}) + field(7, "own"),
                node("If", {"c"}, {"z"},
                     {then({node("Twice", {"x"}, {"t"}) + field(7, "own")}, {"t"}),
                      otherwise({node("Neg", {"x"}, {"t"})}, {"t"})})};
  const auto model = open(wire);
  const graph::Graph graph = model->graph({});
  ASSERT_EQ(graph.node_count(), 2u);
  for (const graph::Node &branch : graph.nodes()) {
    const graph::Graph &taken =
        model->bodies().at(static_cast<std::size_t>(branch.attributes.integer("then_branch", -1))).graph;
    EXPECT_EQ(taken.nodes()[0].op, "Add") << "Twice";
    EXPECT_EQ(names_of(taken, taken.inputs), Names{"x"});
  }
}

TEST_F(Bodies, ThatAreMalformedAreRefused) {
  const std::string fine = otherwise({node("Neg", {"x"}, {"b"})}, {"b"});
  const auto expect = [&](const std::string &then_branch, const char *text) {
    const Error found = error(branching(then_branch, fine));
    EXPECT_EQ(found.code, Code::graph) << found.text;
    EXPECT_NE(found.text.find(text), std::string::npos) << found.text;
  };
  expect(then({node("Neg", {"q"}, {"a"})}, {"a"}), "reads \"q\", which nothing defines");
  expect(then({node("Neg", {"b"}, {"a"})}, {"a"}), "reads \"b\", which nothing defines");
  expect(then({node("Neg", {"x"}, {"a"}), node("Abs", {"x"}, {"a"})}, {"a"}), "\"a\" is defined twice");
  expect(then({node("Neg", {"x"}, {"a"})}, {"d"}), "no node produces \"d\"");
  expect(then({node("Neg", {"e"}, {"a"}), node("Neg", {"a"}, {"e"})}, {"a"}), "cycle");
  expect(then({}, {}), "a body without outputs");
  expect(test::int_attribute("then_branch", 0), "the attribute then_branch must be a graph");
  expect(body_attribute("third_branch", {}, {}, {"x"}), "the attribute third_branch may not be a graph");
}

}  // namespace
}  // namespace protrain::onnx_import::bodies_test
