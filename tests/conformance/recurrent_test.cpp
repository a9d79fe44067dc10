#include "conformance/contest.h"
#include "recurrent_nodes.h"

namespace protrain::test::recurrent_test {
namespace {

PROTRAIN_FAMILY(RecurrentKernel);

// Steps, batch and units. The members of a team share the units in groups of 16, so there are sizes below, at and above
// a multiple of 16.
const RecurrentSizes kSizes[] = {{1, 1, 1}, {3, 2, 5}, {5, 3, 16}, {4, 7, 33}, {2, 17, 48}};

void expect_both(const Conformance &backend, const OneNode &node) {
  backend.expect_reference(node, 5e-6);
  backend.expect_reference(recurrent_gradient(node, 77), 1e-5);
}

TEST_P(RecurrentKernel, IsTheReferenceInEveryForm) {
  unsigned seed = 0;
  for (const auto &[op, attributes] : recurrent_forms())
    for (const RecurrentSizes &sizes : kSizes) {
      OneNode node = recurrent(op, sizes, attributes, seed += 10);
      for (std::size_t i = 1; i < 3; ++i)  // states and products near those of trained layers
        node.inputs[i] = random_floats(node.inputs[i].shape(), seed + unsigned(i), -0.4, 0.4);
      expect_both(*this, node);
    }
}

TEST_P(RecurrentKernel, IsTheReferenceOfWholeSequencesFromZero) {
  for (const char *op : {"LstmSteps", "GruSteps", "RnnSteps"}) {
    OneNode node = recurrent(op, {6, 5, 24}, {}, 5);
    node.inputs.resize(2);
    node.inputs[1] = random_floats(node.inputs[1].shape(), 6, -0.3, 0.3);
    expect_both(*this, node);
  }
}

TEST_P(RecurrentKernel, ASampleMayHaveNoSteps) {
  for (const char *op : {"LstmSteps", "GruSteps", "RnnSteps"}) {
    OneNode node = recurrent(op, {3, 3, 4}, {}, 8);
    node.inputs[3] = Array::from_integers({DType::i32, {3}}, {0, -2, 9});
    expect_both(*this, node);
  }
}

}  // namespace
}  // namespace protrain::test::recurrent_test
