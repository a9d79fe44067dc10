// Runs ONNX's own cases of every operator. docs/operators.md must list the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>

#include "grad/training.h"
#include "onnx_nodes/table.h"
#include "onnx_nodes/ways.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::nodes_test {
namespace {

std::vector<Case> all_cases() {
  const auto packed = [](const char *pack) {
    return packed_cases(std::string(PROTRAIN_FIXTURES) + "/../onnx_nodes/" + pack);
  };
  std::vector<Case> cases = packed("cases-7-12.bin");
  for (std::vector<Case> &more : std::array{installed_cases(), packed("cases-18-24.bin"), packed("cases-contrib.bin"),
                                            packed("cases-runtime.bin")})
    std::ranges::move(more, std::back_inserter(cases));
  return cases;
}

const std::vector<CaseResult> &all_results() {
  static const std::vector<CaseResult> all = [] {
    std::vector<CaseResult> made;
    for (Case &one : all_cases()) {
      const Result result = run(one);
      made.push_back({std::move(one), result});
    }
    return made;
  }();
  return all;
}

// Kernels must give the right results for all cases that come from ONNX Runtime, and gradients must equal finite
// differences. Only the cases test_contrib_gather_* have no gradient, because their tables hold integers.
TEST(RuntimeCases, GiveWhatOnnxRuntimeGives) {
  int count = 0;
  for (const CaseResult &one : all_results()) {
    if (!one.given.name.starts_with("test_contrib_") && !one.given.name.starts_with("test_runtime_")) continue;
    ++count;
    EXPECT_EQ(one.result.outcome, Outcome::computed) << one.given.name << ": " << one.result.reason;
    const bool frozen = one.given.name.starts_with("test_contrib_gather_");  // tables of integers
    const Slope expected = frozen ? Slope::refused : Slope::checked;
    EXPECT_EQ(one.result.slope, expected) << one.given.name << ": " << one.result.reason;
  }
  EXPECT_GT(count, 0);
}

TEST(NodeCases, GiveWhatIsExpectedOrAreRefused) {
  ASSERT_FALSE(all_results().empty());
  for (const CaseResult &one : all_results())
    EXPECT_NE(one.result.outcome, Outcome::wrong) << one.given.name << ": " << one.result.reason;
}

// At 0, PRelu must have the slope of its negative side, as in PyTorch.
TEST(Slopes, OfPReluAtZeroIsItsParameter) {
  HandBuilt b;
  const ValueId x = b.parameter("x", {3});
  const ValueId y = b.add("PRelu", {x, b.number(0.25)});
  b.graph.outputs = {b.add("ReduceSum", {y}, {{"axes", Integers{0}}, {"keepdims", std::int64_t{0}}})};
  passes::fold(b.graph);
  const grad::Training training = grad::build(b.graph, b.graph.outputs[0]);
  const auto values = ops::interpret(training.graph, {{x, Array::from_doubles({DType::f64, {3}}, {-1, 0, 1})}});
  EXPECT_EQ(values[index(training.gradients.at(0))].doubles(), (std::vector<double>{0.25, 0.25, 1}));
}

TEST(Table, IsTheOneInDocs) {
  const std::vector<Case> installed = installed_cases();
  const auto is_later = [](const Case &one) { return one.opset > 17; };
  if (installed.empty() || std::ranges::any_of(installed, is_later))
    GTEST_SKIP() << "the table counts the cases of Debian 12's libonnx-testdata";
  const std::string table = table_of(all_results());
  std::ostringstream docs;
  docs << std::ifstream(PROTRAIN_FIXTURES "/../../docs/operators.md").rdbuf();
  if (docs.str() == table) return;
  const std::string made = testing::TempDir() + "operators.md";
  std::ofstream(made) << table;
  FAIL() << "docs/operators.md is not what the cases give; compare it with " << made << " and copy that over it";
}

}  // namespace
}  // namespace protrain::test::nodes_test
