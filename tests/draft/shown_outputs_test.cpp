// The outputs that the option keep_outputs names. An output that no node computes is refused. Weights that the file
// holds twice are one parameter, whichever copy an output reads.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "draft/hostile_cases.h"
#include "draft/loaded_model.h"
#include "errors.h"
#include "onnx_import/wire.h"
#include "ops/op.h"

namespace protrain::draft::shown_outputs_test {
namespace {

using test::node;

// Returns the sentence that refuses the output z; "" if z is accepted. The model computes y = x w (float32[2, 4]), and
// `nodes` compute z.
std::string refusal(const test::Names &nodes) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.nodes.insert(wire.nodes.end(), nodes.begin(), nodes.end());
  wire.initializers.push_back(test::integers("flat", {-1}));
  wire.outputs.push_back(test::value("z", test::kFloat, {}));
  Options options;
  for (const auto &[key, value] : {std::pair("loss", "mse"), {"loss_output", "y"}, {"keep_outputs", "z"}})
    options.set(key, value);
  const std::string model = scratch.put("model.onnx", wire.bytes());
  return test::error_of([&] { load_model(settings_of(options), model); }).text;
}

TEST(ShownOutputs, AreComputedByANode) {
  EXPECT_EQ(refusal({node("Tanh", {"w"}, {"z"})}), "");
  EXPECT_EQ(refusal({node("Reshape", {"y", "flat"}, {"z"})}), "");
  EXPECT_EQ(refusal({node("Tanh", {"w"}, {"t"}), node("Reshape", {"t", "flat"}, {"z"})}), "");
}

// An output that is only another shape of a weight or an input lies in the memory of that weight or input. After the
// prediction, the weight may be gone from this memory, and the input may be replaced by the next batch.
TEST(ShownOutputs, AreNotOnlyAnotherShapeOfAWeightOrAnInput) {
  const std::string sentence =
      "output z is an input, a weight or a constant, or another shape of one; no node computes it";
  for (const char *from : {"w", "x"}) {
    EXPECT_EQ(refusal({node("Identity", {from}, {"z"})}), sentence) << from;
    EXPECT_EQ(refusal({node("Reshape", {from, "flat"}, {"z"})}), sentence) << from;
    EXPECT_EQ(refusal({node("Reshape", {from, "flat"}, {"r"}), node("Dropout", {"r"}, {"z"})}), sentence) << from;
  }
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Loads a file that holds a parameter, weight, and its transpose, t. The trained output is y = x read (3, 4), and z = v
// other (4, 3) is another output. The names `read` and `other` are weight and t, or t and weight.
LoadedModel loaded_with_copy(const std::string &read, const std::string &other, const Pairs &more) {
  const auto note = [](const std::string &name, const std::string &key, const std::string &text) {
    return test::field(13, test::field(1, name) + test::field(4, test::pair(key, text)));
  };
  test::Wire wire;
  wire.initializers = {test::floats(read, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
                       test::floats(other, {4, 3}, {1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12})};
  wire.inputs = {test::value("x", test::kFloat, {"3", "3"}), test::value("v", test::kFloat, {"4", "4"})};
  wire.nodes = {node("MatMul", {"v", other}, {"z"}), node("MatMul", {"x", read}, {"y"})};
  wire.outputs = {test::value("y", test::kFloat, {"3", "4"}), test::value("z", test::kFloat, {"4", "3"})};
  wire.graph_extra = note("weight", "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER") +
                     note("t", "pkg.onnxscript.optimizer.folded_from", "['weight']");
  Options options;
  for (const auto &[key, value] : Pairs{{"loss", "mse"}, {"loss_output", "y"}, {"keep_outputs", "*"}})
    options.set(key, value);
  for (const auto &[key, value] : more) options.set(key, value);
  const test::Scratch scratch;
  return load_model(settings_of(options), scratch.put("model.onnx", wire.bytes()));
}

// Computes the outputs y and z of the graph, where x and v are identities. All other values are arbitrary.
std::pair<graph::Array, graph::Array> read_by_identities(const graph::Graph &graph) {
  std::map<graph::ValueId, graph::Array> bound;
  for (const std::vector<graph::ValueId> &ids : {graph.inputs, graph.parameters})
    for (const graph::ValueId id : ids) {
      const graph::Type &type = graph.value(id).type;
      const bool identity = graph.value(id).name == "x" || graph.value(id).name == "v";
      std::vector<double> values;
      for (std::int64_t i = 0; i < element_count(type.shape); ++i)
        values.push_back(identity ? (i % (type.shape[0] + 1) == 0 ? 1 : 0) : 0.125 * static_cast<double>(i % 7) - 0.25);
      bound.emplace(id, graph::Array::from_doubles(type, values));
    }
  const std::vector<graph::Array> arrays = ops::interpret(graph, bound);
  return {arrays.at(index(graph.outputs.at(0))), arrays.at(index(graph.outputs.at(1)))};
}

TEST(ShownOutputs, MayReadATransposedCopyOfWhatIsTrainedOrAdapted) {
  for (const auto &[read, other] : {std::pair("weight", "t"), std::pair("t", "weight")})
    for (const bool adapts : {false, true}) {
      const LoadedModel loaded = loaded_with_copy(read, other, adapts ? Pairs{{"lora", read}} : Pairs{});
      EXPECT_EQ(loaded.prepared.graph.parameters.size(), adapts ? 3u : 1u) << read;
      const auto [y, z] = read_by_identities(loaded.outputs);
      const std::vector<double> rows = y.doubles(), columns = z.doubles();
      ASSERT_EQ(rows.size(), columns.size());
      for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_NEAR(rows[i], columns[i % 4 * 3 + i / 4], 1e-6) << read << " " << i;
    }
}

}  // namespace
}  // namespace protrain::draft::shown_outputs_test
