#include "onnx_nodes/table.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "onnx_import/wire.h"
#include "ops/op.h"

namespace protrain::test {

namespace {

constexpr std::int64_t kFirst = 7, kLast = 28, kOldCases = 17;

constexpr std::string_view kContrib = "com.microsoft::";

bool is_contrib(const std::string &op) { return op.starts_with(kContrib); }

struct Count {
  int passed = 0, all = 0;
  std::string text() const { return all == 0 ? "" : fmt::format("{} of {}", passed, all); }
};

struct Row {
  Count until, after;  // the numbers of cases of opsets up to kOldCases, and of later opsets
  bool read = false, checked = false, refused = false, computed = false;
  std::set<std::string> without;  // inputs without a gradient
  std::string opsets;
  std::map<std::string, std::set<std::string>> missing;  // reason -> cases
};

// The opsets under which the importer accepts the case's model, as "13 to 24, 26".
std::string opsets_of(const Case &given) {
  const Scratch scratch;
  std::string text;
  std::int64_t begin = 0;
  for (std::int64_t opset = kFirst; opset <= kLast + 1; ++opset) {
    bool accepted = opset <= kLast;
    try {
      if (accepted) open_bytes(scratch, with_opset(given.model, opset));
    } catch (const Error &error) {
      accepted = error.code != Code::version && error.code != Code::unsupported;
    }
    if (accepted && begin == 0) begin = opset;
    if (accepted || begin == 0) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", begin);
    if (opset - 1 > begin) text += fmt::format(" to {}", opset - 1);
    begin = 0;
  }
  return text;
}

// Maps the name of each case with a single node to the node's operator. Some of these cases have a variant in which
// several nodes replace the operator. The variant's name is the case's name with "_expanded" added, so operator_of()
// can look up the operator of the variant in this map.
std::map<std::string, std::string> operators_by_case(const std::vector<CaseResult> &results) {
  std::map<std::string, std::string> found;
  for (const CaseResult &one : results)
    if (one.given.node_count == 1) found[one.given.name] = one.given.op;
  return found;
}

std::string operator_of(const Case &given, const std::map<std::string, std::string> &by_case) {
  if (given.node_count == 1) return given.op;
  const auto found = by_case.find(given.name.substr(0, given.name.find("_expanded")));
  return found == by_case.end() ? "" : found->second;
}

void count(const CaseResult &one, Row &row) {
  const Result &result = one.result;
  if (result.outcome == Outcome::inapplicable) return;
  Count &counted = one.given.opset <= kOldCases ? row.until : row.after;
  const bool passed = result.outcome == Outcome::computed || result.outcome == Outcome::folded;
  if (!one.given.name.starts_with("test_runtime_")) {  // ONNX's own
    ++counted.all;
    counted.passed += passed ? 1 : 0;
  }
  row.read |= passed && one.given.node_count == 1;
  if (!passed) row.missing[result.reason].insert(one.given.name);
  if (result.slope == Slope::checked && !result.without.empty())
    for (const auto part : std::views::split(result.without, std::string_view(", ")))
      row.without.emplace(part.begin(), part.end());
  row.computed |= result.outcome == Outcome::computed;
  row.checked |= result.slope == Slope::checked;
  row.refused |= result.slope == Slope::refused;
}

// Maps operators to inputs that get no gradient under a condition that no case tests.
const std::map<std::string, std::string> kWithoutElsewhere = {
    {"NegativeLogLikelihoodLoss", "w where LogSoftmax makes the input"}};

// The text of the column "gradient". If no case has checked the gradient, the text says whether the operator has a
// gradient rule. tests/ops checks those rules.
std::string gradient_of(const std::string &op, const Row &row) {
  const ops::Op *known = ops::find(op);
  const bool listed = known != nullptr && known->gradient != nullptr;
  if (row.checked || (listed && !row.refused)) {
    std::set<std::string> without = row.without;
    if (const auto elsewhere = kWithoutElsewhere.find(op); elsewhere != kWithoutElsewhere.end())
      without.insert(elsewhere->second);
    return without.empty() ? "yes" : "yes, not to " + fmt::format("{}", fmt::join(without, ", "));
  }
  return row.refused ? "no" : row.computed ? "none" : "";
}

const char *const kHead =
    "# Operators\n"
    "This page lists the operators of ONNX's default domain that the library reads. `test_onnx_nodes` makes it\n"
    "from ONNX's node tests and fails if it is out of date.\n"
    "\n"
    "- *Opsets*: the opsets of the files in which the operator is read. After 24 only operators that have not\n"
    "  changed since are read.\n"
    "- *Gradient*: \"yes\" means that the gradients of the test cases equal finite differences in float64. \"none\"\n"
    "  means that the operator has no gradient, or that it is zero wherever it is defined. An empty cell means\n"
    "  that the operator is evaluated when a model is opened, and not in a step.\n"
    "- *Cases*: how many of ONNX's own cases give what ONNX expects, up to opset 17 (libonnx-testdata of Debian 12,\n"
    "  with functions written out, and `tests/onnx_nodes/cases-7-12.bin` for forms of older opsets) and of opsets\n"
    "  18 to 24 (`tests/onnx_nodes/cases-18-24.bin`). In float32 they run on the CPU's kernels. Other types, and\n"
    "  what depends on constants alone, are evaluated once. Cases of strings, sequences, float8 and four-bit\n"
    "  types, and cases that draw random numbers, are not counted.\n"
    "\n"
    "| operator | opsets | gradient | cases to 17 | cases 18 to 24 |\n"
    "|---|---|---|---|---|\n";

const char *const kContribHead =
    "\n## Operators of ONNX Runtime\n"
    "ONNX Runtime writes these operators of the domain `com.microsoft` into graphs that it has optimised. They\n"
    "are read in files of every opset. The cases are those of `tests/onnx_nodes/cases-contrib.bin`, with ONNX\n"
    "Runtime's own results.\n"
    "\n"
    "| operator | gradient | cases |\n"
    "|---|---|---|\n";

}  // namespace

std::string table_of(const std::vector<CaseResult> &results) {
  const std::map<std::string, std::string> by_case = operators_by_case(results);
  std::map<std::string, Row> rows;
  std::map<std::string, const Case *> newest;
  for (const CaseResult &one : results) {
    const std::string op = operator_of(one.given, by_case);
    if (op.empty() || (op.find("::") != std::string::npos && !is_contrib(op))) continue;
    count(one, rows[op]);
    if (one.given.node_count == 1) newest[op] = &one.given;
  }
  std::string table, contrib, unknown, missing;
  for (auto &[op, row] : rows) {
    if (is_contrib(op)) {
      contrib += fmt::format("| {} | {} | {} |\n", op.substr(kContrib.size()), gradient_of(op, row), row.until.text());
      continue;
    }
    // Leaves out an operator of the library if no case of it was counted. Cases that draw random numbers, for example,
    // are not counted.
    if (ops::find(op) != nullptr && row.until.all + row.after.all == 0) continue;
    if (!row.read) {
      unknown += (unknown.empty() ? "" : ", ") + op;
      continue;
    }
    table += fmt::format("| {} | {} | {} | {} | {} |\n", op, opsets_of(*newest.at(op)), gradient_of(op, row),
                         row.until.text(), row.after.text());
    for (const auto &[reason, names] : row.missing)
      for (const std::string &name : names) missing += fmt::format("- {}, `{}`: {}\n", op, name, reason);
  }
  return kHead + table + kContribHead + contrib + "\n## Cases that are refused\n" + missing +
         "\n## Operators of ONNX's cases that are not read\n" + unknown + ".\n";
}

}  // namespace protrain::test
