// Splits vectors that an exporter merged, so that each reader has its own vector again. The vectors of a layer that is
// applied several times are not split.
#include "passes/parameters/split.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "passes/hand_built.h"

namespace protrain::test::split_test {

namespace {

using Names = std::vector<std::string>;

// Splits the graph's merged vectors and returns the names of the new ones. `values` gives values by name; others are 1.
Names split(Graph &graph, const std::map<std::string, Array> &values = {}) {
  const auto load = [&](const std::string &name) {
    const auto found = values.find(name);
    return found != values.end() ? found->second : Array::filled(graph.value(graph.find(name)).type, 1);
  };
  Names names;
  for (const graph::Split &one : passes::split_merged(graph, load)) names.push_back(one.name);
  return names;
}

class MergedVectors : public testing::Test {
 protected:
  ValueId norm(ValueId x) { return b.add("RMSNormalization", {x, ones}); }
  ValueId product(ValueId x, const std::string &w) {
    const ValueId known = b.graph.find(w);
    return b.add("MatMul", {x, known != ValueId::none ? known : b.initializer(w, {4, 4})});
  }
  ValueId sum(ValueId a, ValueId c) { return b.add("Add", {a, c}); }
  std::set<ValueId> read_by(const std::string &op) const {
    std::set<ValueId> found;
    for (const graph::Node &node : b.graph.nodes())
      if (node.op == op) found.insert(node.inputs.at(1));
    return found;
  }

  HandBuilt b;
  const ValueId x = b.input("x", {2, 4});
  const ValueId ones = b.initializer("ones", {4});
};

TEST_F(MergedVectors, NormsOfDifferentLayersAreOnesOfTheirOwn) {
  ValueId h = x;
  for (const char *w : {"w0", "w1", "w2"}) h = sum(h, product(norm(h), w));
  b.graph.outputs = {norm(h)};
  EXPECT_EQ(split(b.graph), (Names{"ones/2", "ones/3", "ones/4"}));
  EXPECT_EQ(read_by("RMSNormalization").size(), 4u);
}

TEST_F(MergedVectors, NormsAfterTheResidualToo) {
  ValueId h = x;
  for (const char *w : {"w0", "w1"}) h = norm(sum(h, product(h, w)));
  b.graph.outputs = {h};
  EXPECT_EQ(split(b.graph), Names{"ones/2"});
}

TEST_F(MergedVectors, BiasesOfProductsThatMeetLaterToo) {
  const ValueId q = sum(product(x, "q"), ones), k = sum(product(x, "k"), ones);
  const ValueId scores = b.add("MatMul", {q, b.transpose(k, {1, 0})});
  b.graph.outputs = {product(b.add("MatMul", {scores, sum(product(x, "v"), ones)}), "o")};
  EXPECT_EQ(split(b.graph), (Names{"ones/2", "ones/3"}));
}

TEST_F(MergedVectors, ALayerThatIsAppliedThriceKeepsItsVectors) {
  ValueId h = x;
  for (int i = 0; i < 3; ++i) h = sum(h, product(norm(h), "w"));
  b.graph.outputs = {h};
  EXPECT_EQ(split(b.graph), Names{});
}

TEST_F(MergedVectors, AVarianceThatIsAnIdentityOfItsScaleIsOneOfItsOwn) {
  const ValueId mean = b.initializer("mean", {4}), bias = b.initializer("bias", {4});
  const ValueId scale = b.add("Identity", {b.add("Identity", {ones})});
  b.graph.outputs = {b.add("BatchNormalization", {x, scale, bias, mean, b.add("Identity", {ones})})};
  EXPECT_EQ(split(b.graph), Names{"ones/2"});
  const graph::Node &norm = b.graph.nodes().back();
  EXPECT_EQ(norm.inputs.at(1), ones);
  EXPECT_EQ(norm.inputs.at(4), b.graph.find("ones/2"));
}

TEST_F(MergedVectors, ASharedLayerKeepsItsOwnAmongOthers) {
  ValueId h = sum(x, product(norm(x), "first"));
  for (int i = 0; i < 2; ++i) h = sum(h, product(norm(h), "shared"));
  b.graph.outputs = {h};
  EXPECT_EQ(split(b.graph), Names{"ones/2"});
  EXPECT_EQ(read_by("RMSNormalization").size(), 2u);
}

TEST_F(MergedVectors, ValuesThatDifferWereTrainedTogether) {
  const ValueId h = sum(x, product(norm(x), "w0"));
  b.graph.outputs = {product(norm(h), "w1")};
  const Graph before = b.graph;
  EXPECT_EQ(split(b.graph, {{"ones", some_values({DType::f64, {4}}, 1)}}), Names{});
  EXPECT_EQ(b.graph.print(), before.print());
}

TEST_F(MergedVectors, MasksAreNoWeights) {
  const ValueId h = product(norm(x), "w0");
  b.graph.outputs = {b.add("Where", {b.add("Less", {h, ones}), product(h, "w1"), ones})};
  EXPECT_EQ(split(b.graph), Names{});
}

// A file of PyTorch's older exporter, which writes Identity nodes for tensors that it merged.
class NamedTensors : public testing::Test {
 protected:
  // An Identity of the stored tensor, for the tensor `name` of the framework.
  ValueId merged(ValueId stored, const std::string &name) {
    const ValueId made = b.add("Identity", {stored});
    all_[b.graph.value(made).name] = {b.graph.value(stored).name, name, b.graph.value(stored).name};
    return made;
  }
  // Splits, and returns the names in the framework of the tensors that became initializers.
  Names split() {
    const auto load = [&](const std::string &name) {
      const graph::Type type{DType::f64, b.graph.value(b.graph.find(name)).type.shape};
      return name.ends_with("norm") ? Array::filled(type, 1) : some_values(type, 1);
    };
    Names names;
    for (const graph::Split &one : passes::split_merged(b.graph, load, all_)) {
      const graph::MergedTensor &tensor = all_.at(one.name);
      EXPECT_EQ(one.original, tensor.original);
      EXPECT_EQ(one.name_in_file(), one.name);
      EXPECT_EQ(b.graph.value(b.graph.find(one.name)).origin, graph::Origin::initializer);
      names.push_back(tensor.name);
    }
    return names;
  }

  HandBuilt b;
  std::map<std::string, graph::MergedTensor> all_;
  const ValueId x = b.input("x", {2, 4});
};

TEST_F(NamedTensors, OfACopiedModuleAreItsOwn) {
  const ValueId w = b.initializer("layers.0.w", {4, 4}), v = b.initializer("layers.0.v", {4, 4});
  ValueId h = b.add("MatMul", {b.add("MatMul", {x, w}), v});
  h = b.add("MatMul", {b.add("MatMul", {h, merged(w, "layers.1.w")}), merged(v, "layers.1.v")});
  b.graph.outputs = {h};
  EXPECT_EQ(split(), (Names{"layers.1.w", "layers.1.v"}));
  EXPECT_EQ(histogram(b.graph).count("Identity"), 0u);
}

// The exporter writes an Identity too if two parameters share their memory.
TEST_F(NamedTensors, ThatAloneAreEqualAreOne) {
  const ValueId w = b.initializer("table.w", {4, 4});
  b.graph.outputs = {b.add("MatMul", {b.add("MatMul", {x, w}), merged(w, "head.w")})};
  EXPECT_EQ(split(), Names{});
  EXPECT_EQ(b.graph.nodes().back().inputs.at(1), w);
}

// Vectors that the file shares beside named ones are shared in the model.
TEST_F(NamedTensors, WhoseNumbersAreAllEqualAreOnesOfTheirOwn) {
  const ValueId ones = b.initializer("a.norm", {4});
  ValueId h = b.add("RMSNormalization", {x, ones});
  h = b.add("RMSNormalization", {b.add("MatMul", {h, b.initializer("v", {4, 4})}), ones});
  b.graph.outputs = {
      b.add("RMSNormalization", {b.add("MatMul", {h, b.initializer("w", {4, 4})}), merged(ones, "b.norm")})};
  EXPECT_EQ(split(), Names{"b.norm"});
}

TEST_F(MergedVectors, OfAModuleThatIsUsedTwiceAreOne) {
  const ValueId scale = b.initializer("n.weight", {4});
  const auto named = [&](const std::string &name, ValueId to) {
    const ValueId made = b.add("RMSNormalization", {to, scale});
    b.graph.node(b.graph.value(made).producer).name = name;
    return made;
  };
  ValueId h = product(named("/n/Norm", x), "w0");
  h = product(named("/n_1/Norm", h), "w1");
  b.graph.outputs = {product(named("/other/Norm", h), "w2")};
  EXPECT_EQ(split(b.graph), Names{"n.weight/2"});
}

// A Split names each reader of the new vector by the reader's output. An export finds the readers by these names, and
// splits the initializer of the file in the same way.
TEST_F(MergedVectors, ReadersAreNamedByTheirOutput) {
  const ValueId h = sum(x, product(norm(x), "w0")), y = norm(h);
  b.graph.outputs = {product(y, "w1")};
  const std::vector<graph::Split> splits = passes::split_merged(b.graph, [](const std::string &) {
    return Array::filled({DType::f64, {4}}, 0);
  });
  ASSERT_EQ(splits.size(), 1u);
  EXPECT_EQ(splits[0].original, "ones");
  ASSERT_EQ(splits[0].readers.size(), 1u);
  EXPECT_EQ(splits[0].readers[0].output, b.graph.value(y).name);
  EXPECT_EQ(splits[0].readers[0].input, 1u);
}

// If a file holds every declared tensor, the exporter has merged none. So a norm that two layers share in the file is
// shared in the model too, and is not split.
TEST(SharedVectors, StayOneIfTheFileHoldsAllThatIsDeclared) {
  using graph::StoredKind;
  const auto splits = [](const std::map<std::string, StoredKind> &kinds) {
    HandBuilt b;
    const ValueId ones = b.initializer("norm.weight", {4}, DType::f32);
    ValueId h = b.input("x", {2, 4}, DType::f32);
    for (const char *w : {"first", "second"}) {
      const ValueId normed = b.add("RMSNormalization", {h, ones});
      h = b.add("Add", {h, b.add("MatMul", {normed, b.initializer(w, {4, 4}, DType::f32)})});
    }
    b.graph.outputs = {h};
    const auto load = [&](const std::string &name) { return Array::filled(b.graph.value(b.graph.find(name)).type, 1); };
    passes::Choices choices = {.losses = {{.kind = passes::Loss::Kind::mse, .labels = "y"}}};
    choices.declared.kinds = kinds;
    choices.declared.folded_from = {{"second", {"second.weight"}}};
    return passes::prepare(b.graph, load, choices).splits.size();
  };
  const std::map<std::string, StoredKind> held = {{"norm.weight", StoredKind::parameter},
                                                  {"first", StoredKind::parameter},
                                                  {"second.weight", StoredKind::parameter},
                                                  {"bn.num_batches_tracked", StoredKind::buffer}};
  EXPECT_EQ(splits(held), 0u);
  std::map<std::string, StoredKind> lost = held;
  lost.emplace("norm2.weight", StoredKind::parameter);
  EXPECT_EQ(splits(lost), 1u);
  EXPECT_EQ(splits({}), 1u);
}

}  // namespace

}  // namespace protrain::test::split_test
