// Tests absent operands. Runs every operator's kernel once for each choice of optional inputs and of outputs that are
// left out.
#include "conformance/contest.h"
#include "every_kernel.h"

namespace protrain::test::absent_test {
namespace {

PROTRAIN_FAMILY(AbsentOperands);

std::string named(const OneNode &node) {
  std::string text = node.op;
  for (const Array &input : node.inputs) text += " " + (input.dtype() == DType::none ? "-" : to_text(input.type()));
  return text;
}

TEST_P(AbsentOperands, AreNeitherReadNorWritten) {
  std::vector<OneNode> nodes = every_kernel();
  if (GetParam()->name == "cpu") std::ranges::copy(document_nodes(), std::back_inserter(nodes));
  for (const OneNode &whole : nodes)
    for (const OneNode &node : without_inputs(whole)) {
      SCOPED_TRACE(named(node));
      if (ops::find(node.op)->evaluate != nullptr) expect_reference(node);
      expect_outputs_apart(node);
    }
}

TEST(EveryKernel, HasASample) {
  const std::vector<OneNode> nodes = every_kernel();
  for (std::string_view name : kernel_names()) EXPECT_EQ(std::ranges::count(nodes, name, &OneNode::op), 1) << name;
}

TEST(EveryOperator, HasAKernelOrIsAnAliasOrOnlyOccursInFiles) {
  const std::vector<std::string_view> kernels = kernel_names();
  for (std::string_view name : ops::names()) {
    const ops::Op &op = *ops::find(name);
    const bool alias = op.storage == ops::Storage::alias;
    EXPECT_EQ(alias + op.file_only + op.between_ranks + std::ranges::count(kernels, name), 1) << name;
  }
}

// The tests of absent operands can leave out only operands that a sample has. So each optional input of an operator
// must be in its sample of every_kernel() or of document_nodes(). The sample of every_kernel() must also have all
// outputs.
TEST(EveryKernel, HasASampleWithEachOfItsOperands) {
  const std::vector<OneNode> documents = document_nodes();
  for (const OneNode &node : every_kernel()) {
    const auto other = std::ranges::find(documents, node.op, &OneNode::op);
    for (std::size_t i : ops::find(node.op)->optional)
      EXPECT_LT(i, std::max(node.inputs.size(), other == documents.end() ? 0 : other->inputs.size())) << node.op;
    EXPECT_EQ(node.outputs.size(), types_of_all_outputs(node).size()) << node.op;
  }
}

}  // namespace
}  // namespace protrain::test::absent_test
