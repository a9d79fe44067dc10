// Adds low-rank adapters to graphs. The adapted graph must compute what the graph computes with W + scale * (B A)^T in
// the place of the parameter W, in whatever form the parameter is read.
#include "passes/add_adapters.h"

#include <algorithm>

#include "errors.h"
#include "passes/hand_built.h"

namespace protrain::test::add_adapters_test {
namespace {

using passes::Adapter;
using passes::AdapterRequest;
using Start = passes::AdapterMatrix::Start;

const Attributes kTransB = {{"trans_b", std::int64_t{1}}};
constexpr std::int64_t kRank = 2;

AdapterRequest request(const std::string &pattern) {
  return {.pattern = pattern, .rank = kRank, .alpha = 6, .dropout = 0};
}

std::vector<Adapter> add(Graph &graph, const std::vector<AdapterRequest> &requests,
                         const passes::PreparedModel *settled = nullptr) {
  std::vector<passes::Finding> findings;
  const passes::Choices choices = {.adapters = requests, .settled = settled};
  std::vector<Adapter> adapters = passes::add_adapters(graph, choices, {}, findings);
  graph::verify(graph);
  EXPECT_EQ(findings.size(), 2 * adapters.size());
  return adapters;
}

std::map<ValueId, Array> bound(const Graph &graph) {
  std::map<ValueId, Array> values;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const graph::Value &value = graph.values()[i];
    if (value.origin == Origin::input || value.origin == Origin::parameter)
      values.emplace(static_cast<ValueId>(i), some_values(value.type, i + 1));
  }
  return values;
}

// W + scale * (B A)^T, in the layout of W.
Array merged(const Adapter &adapter, const Array &w, const Array &a, const Array &b) {
  std::vector<double> sum = w.doubles();
  const std::vector<double> left = b.doubles(), right = a.doubles();
  const std::int64_t in = a.shape()[1], out = b.shape()[0];
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t i = 0; i < in; ++i)
      for (std::int64_t k = 0; k < kRank; ++k)
        sum.at(static_cast<std::size_t>(adapter.transposed ? i * out + o : o * in + i)) +=
            adapter.request.scale() * left.at(static_cast<std::size_t>(o * kRank + k)) *
            right.at(static_cast<std::size_t>(k * in + i));
  return Array::from_doubles(w.type(), sum);
}

// Adds an adapter for the parameter "w". The results must be those of `before` with the merged weights. Returns the
// adapter.
Adapter expect_merged_results(const Graph &before, const passes::PreparedModel *settled = nullptr) {
  Graph after = before;
  const Adapter adapter = add(after, {request("w")}, settled).at(0);
  const auto values = bound(after);
  const ValueId w = before.find("w");
  auto of_before = bound(before);
  of_before[w] =
      merged(adapter, values.at(w), values.at(after.find(adapter.a.name)), values.at(after.find(adapter.b.name)));
  const std::vector<Array> wanted = ops::interpret(before, of_before), found = ops::interpret(after, values);
  for (ValueId out : before.outputs) {
    const std::vector<double> x = wanted.at(index(out)).doubles(), y = found.at(index(out)).doubles();
    EXPECT_EQ(x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y.at(i), 1e-9) << after.print();
  }
  return adapter;
}

TEST(AddAdapters, ToAProduct) {
  HandBuilt b;
  b.graph.outputs = {b.add("MatMul", {b.input("x", {2, 3, 4}), b.parameter("w", {4, 5})})};
  const Adapter adapter = expect_merged_results(b.graph);
  EXPECT_EQ(adapter.a.shape, (Shape{kRank, 4}));
  EXPECT_EQ(adapter.b.shape, (Shape{5, kRank}));
  EXPECT_EQ(adapter.a.start, Start::uniform);
  EXPECT_EQ(adapter.b.start, Start::zeros);
  EXPECT_TRUE(adapter.transposed);
}

TEST(AddAdapters, ToAProductWithTheTranspose) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4}), w = b.parameter("w", {5, 4});
  b.graph.outputs = {b.add("MatMul", {x, w}, kTransB)};
  EXPECT_FALSE(expect_merged_results(b.graph).transposed);
  b.graph.outputs = {b.add("MatMul", {x, b.transpose(w, {1, 0})})};
  b.graph.drop_dead_nodes();
  EXPECT_FALSE(expect_merged_results(b.graph).transposed);
}

// The nodes between a parameter and its product are followed without recursion.
TEST(AddAdapters, ToAProductBehindManyNodes) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4});
  ValueId w = b.parameter("w", {4, 4});
  for (int i = 0; i < 50'001; ++i) w = b.transpose(w, {1, 0});
  b.graph.outputs = {b.add("MatMul", {x, w})};
  EXPECT_FALSE(add(b.graph, {request("w")}).at(0).transposed);
}

TEST(AddAdapters, ToAGemmWithItsFactorAndFlags) {
  HandBuilt b;
  const ValueId x = b.input("x", {4, 3}), w = b.parameter("w", {5, 4});
  b.graph.outputs = {
      b.add("MatMul", {x, w}, {{"trans_a", std::int64_t{1}}, {"trans_b", std::int64_t{1}}, {"alpha", 0.5}})};
  expect_merged_results(b.graph);
}

TEST(AddAdapters, BehindABiasSoThatItCanStillBeFused) {
  HandBuilt b;
  const ValueId product = b.add("MatMul", {b.input("x", {6, 4}), b.parameter("w", {4, 5})});
  const ValueId sum = b.add("Add", {b.reshape(product, {2, 3, 5}), b.parameter("bias", {5})});
  b.graph.outputs = {b.add("Tanh", {sum})};
  expect_merged_results(b.graph);
  Graph after = b.graph;
  add(after, {request("w")});
  passes::fuse(after);
  passes::clean_up(after);
  EXPECT_TRUE(std::ranges::any_of(after.nodes(), [](const graph::Node &node) { return node.inputs.size() == 3; }))
      << after.print();
}

TEST(AddAdapters, ToALookup) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64), w = b.parameter("w", {7, 4});
  b.graph.outputs = {b.add("Gather", {w, ids}, {{"axis", std::int64_t{0}}})};
  const Adapter adapter = expect_merged_results(b.graph);
  EXPECT_TRUE(adapter.embedding);
  EXPECT_EQ(adapter.a.name, "w.lora_embedding_A");
  EXPECT_EQ(adapter.a.start, Start::zeros);
  EXPECT_EQ(adapter.b.start, Start::normal);
}

// The embedding table is also the head. One adapter must change both places.
TEST(AddAdapters, ToATableThatIsAlsoTheHead) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64), w = b.parameter("w", {7, 4});
  const ValueId rows = b.add("Gather", {w, ids}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("MatMul", {rows, w}, kTransB)};
  const Adapter adapter = expect_merged_results(b.graph);
  EXPECT_FALSE(adapter.embedding);
  EXPECT_EQ(adapter.places, 2u);
  EXPECT_EQ(adapter.a.shape, (Shape{kRank, 4}));
}

TEST(AddAdapters, ToALayerThatIsAppliedTwice) {
  HandBuilt b;
  const ValueId w = b.parameter("w", {4, 4});
  b.graph.outputs = {b.add("MatMul", {b.add("Tanh", {b.add("MatMul", {b.input("x", {3, 4}), w})}), w})};
  EXPECT_EQ(expect_merged_results(b.graph).places, 2u);
}

TEST(AddAdapters, AreNamedAfterTheModule) {
  HandBuilt b;
  const ValueId kept = b.parameter("h.0.attn.weight", {4, 4}), renamed = b.parameter("onnx::MatMul_7", {4, 4}),
                folded = b.parameter("val_3", {4, 4});
  ValueId y = b.input("x", {3, 4});
  for (ValueId w : {kept, renamed, folded}) y = b.add("MatMul", {y, w});
  b.graph.outputs = {y};
  b.graph.node(graph::NodeId{1}).name = "/h.0/mlp/up/MatMul";
  std::vector<passes::Finding> findings;
  passes::Choices choices{.adapters = {request("h.*.weight")}};
  choices.declared.folded_from["val_3"] = {"h.0.down.weight"};
  std::vector<std::string> names;
  for (const Adapter &adapter : passes::add_adapters(b.graph, choices, {}, findings)) names.push_back(adapter.a.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"h.0.attn.lora_A.weight", "h.0.mlp.up.lora_A.weight", "h.0.down.lora_A.weight"}));
}

// Returns a chain of products with square parameters of these names.
Graph chain(const std::vector<std::string> &names) {
  HandBuilt b;
  ValueId y = b.input("x", {3, 4});
  for (const std::string &name : names) y = b.add("MatMul", {y, b.parameter(name, {4, 4})});
  b.graph.outputs = {y};
  return b.graph;
}

AdapterRequest of_module(const std::string &name, std::int64_t rank) {
  return {.pattern = name, .one_module = true, .rank = rank};
}

TEST(AddAdapters, ToTheModuleOfAnEqualNameBeforeOthersThatEndWithIt) {
  for (const auto &names : {std::vector<std::string>{"fc.weight", "block.fc.weight"},
                            std::vector<std::string>{"block.fc.weight", "fc.weight"}}) {
    Graph graph = chain(names);
    const std::vector<Adapter> adapters = add(graph, {of_module("fc", 1), of_module("block.fc", 3)});
    ASSERT_EQ(adapters.size(), 2u);
    for (const Adapter &adapter : adapters) EXPECT_EQ(adapter.module, adapter.request.pattern);
  }
  Graph graph = chain({"block.fc.weight", "fc.weight"});
  EXPECT_EQ(add(graph, {of_module("fc", 1)}).at(0).parameter, "fc.weight");
}

TEST(AddAdapters, ToAModuleWhoseNameTheRequestTellsApart) {
  Graph alike = chain({"a.fc.weight", "b.fc.weight"}), one = chain({"block.fc.weight"});
  EXPECT_EQ(error_of([&] { add(alike, {of_module("fc", 1)}); }).code, Code::mismatch);
  const Error twice = error_of([&] { add(one, {of_module("fc", 1), of_module("block.fc", 3)}); });
  EXPECT_EQ(twice.code, Code::mismatch);
  EXPECT_EQ(twice.subject, "block.fc.weight");
}

TEST(AddAdapters, KeepTheNameOfAModuleThatTheUserTells) {
  Graph graph = chain({"val_7", "fc.weight", "up.weight"});
  std::vector<passes::Finding> findings;
  const passes::Choices choices{.adapters = {request("*")}, .modules = {{"val_7", "fc"}}};
  std::vector<std::string> modules;
  for (const Adapter &one : passes::add_adapters(graph, choices, {}, findings)) modules.push_back(one.module);
  EXPECT_EQ(modules, (std::vector<std::string>{"fc", "fc.weight", "up"}));

  Graph own = chain({"val_7", "fc"});
  const Error error = error_of([&] { passes::add_adapters(own, choices, {}, findings); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_NE(error.text.find("val_7 is told"), std::string::npos) << error.text;
}

// A second graph computes further outputs with the same adapters. It may read the parameter first by its transpose, or
// read it elsewhere than the graph that is trained.
TEST(AddAdapters, AsTheyAreInTheGraphThatIsTrained) {
  const auto graph_of = [](bool looks_up, bool multiplies) {
    HandBuilt b;
    const ValueId x = b.input("x", {3, 4}), ids = b.input("ids", {2}, DType::i64), w = b.parameter("w", {4, 4});
    if (multiplies) b.graph.outputs.push_back(b.add("MatMul", {x, b.transpose(w, {1, 0})}));
    if (multiplies) b.graph.outputs.push_back(b.add("MatMul", {x, w}));
    if (looks_up) b.graph.outputs.push_back(b.add("Gather", {w, ids}, {{"axis", std::int64_t{0}}}));
    return b.graph;
  };
  HandBuilt plain;
  plain.graph.outputs = {plain.add("MatMul", {plain.input("x", {3, 4}), plain.parameter("w", {4, 4})})};
  for (Graph trained : {plain.graph, graph_of(true, false)}) {
    passes::PreparedModel settled;
    settled.adapters = add(trained, {request("w")});
    const Adapter &wanted = settled.adapters.at(0);
    for (const bool looks_up : {false, true}) {
      const Adapter adapter = expect_merged_results(graph_of(looks_up, true), &settled);
      EXPECT_EQ(adapter.a.name, wanted.a.name);
      EXPECT_EQ(adapter.transposed, wanted.transposed);
      EXPECT_EQ(adapter.embedding, wanted.embedding);
    }
    Graph without = graph_of(false, false);
    EXPECT_TRUE(add(without, {request("w")}, &settled).empty());
  }
}

TEST(AddAdapters, TheFirstPatternThatMatchesDecides) {
  HandBuilt b;
  const ValueId v = b.parameter("v", {4, 4}), w = b.parameter("w", {4, 4});
  b.graph.outputs = {b.add("MatMul", {b.add("MatMul", {b.input("x", {3, 4}), v}), w})};
  AdapterRequest wide = request("w");
  wide.rank = 3;
  const std::vector<Adapter> adapters = add(b.graph, {wide, request("*")});
  ASSERT_EQ(adapters.size(), 2u);
  EXPECT_EQ(adapters[0].request.rank, kRank);
  EXPECT_EQ(adapters[1].request.rank, 3);
}

TEST(AddAdapters, DropInputsOfProductsOnly) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64);
  const ValueId rows = b.add("Gather", {b.parameter("t", {7, 4}), ids}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("MatMul", {rows, b.parameter("w", {4, 5})})};
  AdapterRequest dropping = request("*");
  dropping.dropout = 0.25;
  add(b.graph, {dropping});
  EXPECT_EQ(histogram(b.graph).at("Dropout"), 1);
  EXPECT_EQ(only(b.graph, "Dropout").attributes.real("ratio", 0), 0.25);
  EXPECT_EQ(only(b.graph, "Dropout").attributes.integer("samples", 0), 2);
}

Error refusal(HandBuilt &b, const std::string &pattern) {
  return error_of([&] { add(b.graph, {request(pattern)}); });
}

TEST(AddAdapters, RefuseAPatternThatMatchesNothing) {
  HandBuilt b;
  b.graph.outputs = {b.add("MatMul", {b.input("x", {3, 4}), b.parameter("w", {4, 5})})};
  const Error error = refusal(b, "v*");
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.text, "the pattern \"v*\" matches no parameter");
}

TEST(AddAdapters, RefuseWhatIsInNoProduct) {
  HandBuilt b;
  const ValueId x = b.input("x", {3, 4}), row = b.parameter("row", {4}), scale = b.parameter("scale", {3, 4}),
                left = b.parameter("left", {2, 3}), cut = b.parameter("cut", {4, 8});
  const ValueId y = b.add("Mul", {b.add("Add", {x, row}), scale});
  b.graph.outputs = {b.add("MatMul", {b.add("MatMul", {left, y}), b.slice(cut, 1, 4, 8)})};
  for (const char *name : {"row", "scale", "left", "cut"}) {
    const Error error = refusal(b, name);
    EXPECT_EQ(error.code, Code::unsupported) << name;
    EXPECT_EQ(error.subject, name);
    EXPECT_NE(error.text.find("reads it"), std::string::npos) << error.text;
  }
}

// The Add reads the whole matrix and cannot be adapted. Only the product would use the adapted weight, so the parameter
// is refused.
TEST(AddAdapters, RefuseAParameterIfOneReaderIsNoProduct) {
  HandBuilt b;
  const ValueId x = b.input("x", {4, 4}), w = b.parameter("w", {4, 4});
  b.graph.outputs = {b.add("Add", {b.add("MatMul", {x, w}), w})};
  EXPECT_EQ(refusal(b, "w").code, Code::unsupported);
}

TEST(StartValues, DependOnSeedAndNameAlone) {
  const passes::AdapterMatrix uniform{.name = "a", .shape = {8, 64}, .start = Start::uniform};
  std::vector<float> all(512), part(100), other(512);
  passes::start_values(uniform, 3, 0, all);
  passes::start_values(uniform, 3, 200, part);
  EXPECT_TRUE(std::ranges::equal(part, std::span(all).subspan(200, 100)));
  passes::start_values(uniform, 4, 0, other);
  EXPECT_NE(all, other);
  EXPECT_LT(*std::ranges::max_element(all), 1.0 / 8);
  EXPECT_GT(*std::ranges::max_element(all), 0.9 / 8);
  EXPECT_LT(*std::ranges::min_element(all), -0.9 / 8);
}

TEST(StartValues, AreNormalForEmbeddings) {
  const passes::AdapterMatrix normal{.name = "b", .shape = {1000, 8}, .start = Start::normal};
  std::vector<float> values(8000);
  passes::start_values(normal, 0, 0, values);
  double sum = 0, squares = 0;
  for (float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  EXPECT_NEAR(sum / 8000, 0, 0.05);
  EXPECT_NEAR(squares / 8000, 1, 0.05);
}

}  // namespace
}  // namespace protrain::test::add_adapters_test
