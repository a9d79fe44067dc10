// Runs ONNX's own cases of every operator. docs/operators.md must list the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>

#include "onnx_nodes/table.h"
#include "onnx_nodes/ways.h"

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

// No case of ONNX Runtime's is refused, and every gradient equals finite differences.
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

TEST(Table, IsTheOneInDocs) {
  if (installed_cases().empty()) GTEST_SKIP() << "the table counts the cases of Debian's libonnx-testdata as well";
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
