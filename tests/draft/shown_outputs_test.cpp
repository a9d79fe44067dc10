// The outputs that the option keep_outputs names. An output that no node computes is refused.
#include <gtest/gtest.h>

#include "draft/hostile_cases.h"
#include "draft/loaded_model.h"
#include "errors.h"
#include "onnx_import/wire.h"

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

}  // namespace
}  // namespace protrain::draft::shown_outputs_test
