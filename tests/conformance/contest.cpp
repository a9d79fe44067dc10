#include "conformance/contest.h"

#include <malloc.h>

#include <algorithm>

#include "every_kernel.h"

namespace protrain::test {

namespace {

// Makes malloc keep freed memory. Each comparison allocates and frees large arrays. In some comparisons, the page
// faults of fresh memory would take half of the time.
[[maybe_unused]] const bool kKeepsFreedMemory =
    mallopt(M_MMAP_THRESHOLD, 1 << 30) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1;

// True if an input stays float32 when the data is in a 16-bit type: statistics, scales and zero points of quantised
// numbers, a teacher's logits, and values derived from a float32 loss.
bool stays_wide(std::string_view op, std::size_t input) {
  struct Wide {
    std::string_view op;
    std::vector<std::size_t> inputs;
  };
  static const std::vector<Wide> rows = {{"FusedAttentionGrad", {5}},
                                         {"LayerNormalizationGrad", {3, 4}},
                                         {"RMSNormalizationGrad", {3}},
                                         {"CrossEntropy", {1, 2}},
                                         {"CrossEntropyGrad", {0, 2, 3, 4}},
                                         {"CtcLossGrad", {0}},
                                         {"MatMul", {3, 4}},
                                         {"LinearCrossEntropy", {2, 4, 6, 7}},
                                         {"LinearCrossEntropyGrad", {2, 4, 5, 6, 7}},
                                         {"CountTargets", {1}},
                                         {"CountedLoss", {0}},
                                         {"Accumulate", {0}},
                                         {"BatchNorm", {3, 4}},
                                         {"BatchNormGrad", {3, 4}},
                                         {"FoldStatistics", {0, 1, 2}},
                                         {"AccumulateStatistics", {0, 1, 2, 3}},
                                         {"LstmStepsGrad", {8, 9}},
                                         {"DequantizeLinear", {1, 2}},
                                         {"FakeQuantize", {1, 2}},
                                         {"FakeQuantizeGrad", {2, 3}}};
  return std::ranges::any_of(
      rows, [&](const Wide &row) { return row.op == op && std::ranges::find(row.inputs, input) != row.inputs.end(); });
}

// The node with its float32 operands rounded to `narrow`, except those that stay float32.
OneNode in_narrow(OneNode one, DType narrow) {
  for (std::size_t i = 0; i < one.inputs.size(); ++i) {
    Array &input = one.inputs[i];
    if (input.dtype() != DType::f32 || stays_wide(one.op, i)) continue;
    input = Array::from_doubles({narrow, input.shape()}, input.doubles());
  }
  if (one.op == "Cast" && one.attributes.text("to", "") == "float32")
    one.attributes.set("to", std::string(name_of(narrow)));
  return one;
}

const Exception *find(const std::vector<Exception> &list, std::string_view op, std::string_view precision) {
  const auto found = std::ranges::find_if(list, [&](const Exception &e) {
    return (e.op == "*" || e.op == op) && (e.precision == "*" || e.precision == precision);
  });
  return found == list.end() ? nullptr : &*found;
}

// The relative error that is allowed in a 16-bit type; 0 for other types. A kernel and the reference can round a result
// to two neighbouring numbers, so the distance between neighbours is allowed. A sixteenth of that distance is added for
// the rounding in float32.
double step_of(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7 + 0x1p-11 : dtype == DType::f16 ? 0x1p-10 + 0x1p-14 : 0;
}

std::vector<Array> run(const OneNode &one, const Contender::Way &way, std::size_t shift) {
  if (way.prepare != nullptr) way.prepare();
  NodeBench bench(one, *way.machine, shift);
  bench.run();
  bench.expect_guards();
  return bench.results();
}

// Returns the error that is allowed for a recurrent node, or 0 for any other node. A recurrent node rounds its state to
// the state's type in each step, so the errors of several steps can add up.
double error_of_states(const OneNode &one) {
  const bool keeps_state = one.op.find("Steps") != std::string::npos;
  return keeps_state ? 2 * step_of(one.inputs.at(1).dtype()) : 0;
}

// Describes the first output that differs from `expected`; "" if none does.
std::string fault_of(const OneNode &one, const std::vector<Array> &expected, const std::vector<Array> &found,
                     double tolerance) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!one.outputs[i]) continue;
    if (found[i].type() != expected[i].type()) return fmt::format("output {} is {}", i, to_text(found[i].type()));
    const double most =
        is_float(expected[i].dtype()) ? std::max({tolerance, step_of(expected[i].dtype()), error_of_states(one)}) : 0;
    const double error = largest_error(found[i], expected[i]);
    if (!(error <= most)) return fmt::format("output {} is wrong by {}, {} is allowed", i, error, most);
  }
  return "";
}
}  // namespace

void Conformance::expect_in(const OneNode &one, std::string_view precision, double tolerance) const {
  const Contender &contender = *GetParam();
  SCOPED_TRACE(fmt::format("{} in {} on {}, attributes {}, first input {}", one.op, precision, contender.name,
                           one.attributes.print(), one.inputs.empty() ? "none" : to_text(one.inputs[0].type())));
  const Exception *unsupported = find(contender.unsupported, one.op, precision);
  const Exception *failure = find(contender.expected_failures, one.op, precision);
  const std::vector<Array> expected = reference(one);
  std::vector<Array> first;
  std::string fault;
  for (std::size_t w = 0; w < contender.ways.size() && fault.empty(); ++w) {
    const Contender::Way &way = contender.ways[w];
    SCOPED_TRACE(way.name);
    std::vector<Array> found;
    try {
      found = run(one, way, w * kAlignment);
    } catch (const Error &error) {
      if (unsupported != nullptr && error.code == Code::unsupported) return;
      ADD_FAILURE() << error.subject << ": " << error.text;
      return;
    }
    ASSERT_EQ(unsupported, nullptr) << "is listed as unsupported, but runs: " << unsupported->reason;
    fault = fault_of(one, expected, found, tolerance);
    if (w == 0) first = found;
    if (std::ranges::find(contender.other_bits, one.op) != contender.other_bits.end()) continue;
    for (std::size_t i = 0; fault.empty() && i < found.size(); ++i)
      if (one.outputs[i] && !found[i].same_as(first[i]))
        fault = fmt::format("output {} has other bits in {}", i, way.name);
  }
  if (failure != nullptr)
    EXPECT_NE(fault, "") << "is listed as a failure, but goes well: " << failure->reason;
  else
    EXPECT_EQ(fault, "");
}

std::vector<std::pair<OneNode, std::string_view>> Conformance::in_each_precision(const OneNode &one) const {
  std::vector<std::pair<OneNode, std::string_view>> all = {{one, "fp32"}};
  for (DType dtype : GetParam()->narrow()) {
    const OneNode narrow = in_narrow(one, dtype);
    bool is_other = false;
    for (std::size_t i = 0; i < one.inputs.size(); ++i) is_other |= narrow.inputs[i].type() != one.inputs[i].type();
    if (is_other) all.emplace_back(narrow, dtype == DType::f16 ? "fp16" : "bf16");
  }
  return all;
}

void Conformance::expect_reference(const OneNode &one, double tolerance) const {
  for (const auto &[node, precision] : in_each_precision(one)) expect_in(node, precision, tolerance);
}

void Conformance::expect_outputs_apart(const OneNode &one) const {
  for (const auto &[node, precision] : in_each_precision(one))
    for (const Contender::Way &way : GetParam()->ways) {
      const std::vector<Array> whole = run(node, way, 0);
      for (const OneNode &part : without_outputs(node)) {
        const std::vector<Array> found = run(part, way, 0);
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(!part.outputs[i] || found[i].same_as(whole[i]))
              << one.op << " in " << precision << ", " << way.name << ", output " << i;
      }
    }
}

std::vector<DType> Contender::narrow() const {
  std::vector<DType> types = ways[0].machine->device->info().precisions;
  std::erase(types, DType::f32);
  return types;
}

bool Contender::computes_in(DType dtype) const {
  const std::vector<DType> &precisions = ways[0].machine->device->info().precisions;
  return std::ranges::find(precisions, dtype) != precisions.end();
}

void Conformance::expect_error(const OneNode &one, const std::string &text) const {
  for (const Contender::Way &way : GetParam()->ways) {
    try {
      run(one, way, 0);
      ADD_FAILURE() << one.op << " went well on " << GetParam()->name << ", " << way.name;
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::arg);
      EXPECT_EQ(error.text, text);
    }
  }
}

std::vector<const Contender *> entered() {
  std::vector<const Contender *> all;
  for (const Contender &contender : contenders()) all.push_back(&contender);
  return all;
}

std::string name_of_contender(const testing::TestParamInfo<const Contender *> &info) { return info.param->name; }

}  // namespace protrain::test
