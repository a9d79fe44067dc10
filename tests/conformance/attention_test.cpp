// Compares FusedAttention and its gradient with their references. Largest error allowed: 5e-6 forward, 2e-5 backward.
#include "conformance/contest.h"
#include "cuda/emulation.h"
#include "errors.h"
#include "kernel_nodes.h"

namespace protrain::test::attention_test {
namespace {

PROTRAIN_FAMILY(FusedAttentionKernel);

void expect_both(Conformance &backend, const OneNode &node) {
  backend.expect_reference(node, 5e-6);
  backend.expect_reference(backward(node, 77), 2e-5);
}

std::vector<Array> results_of(const OneNode &node, const Contender::Way &way) {
  if (way.prepare != nullptr) way.prepare();
  NodeBench bench(node, *way.machine);
  bench.run();
  return bench.results();
}

const std::vector<AttentionSizes> kSizes = {
    {1, 1, 1, 1, 1, 4, 4},       {2, 9, 9, 3, 3, 8, 8},      {1, 64, 64, 2, 1, 16, 16}, {2, 70, 70, 4, 2, 12, 20},
    {1, 130, 130, 2, 2, 32, 16}, {1, 65, 200, 2, 1, 16, 16}, {1, 1, 150, 4, 4, 16, 16}, {3, 5, 2, 2, 2, 8, 8}};

// True if a contender skips this case. The emulated device is slow, so it computes the causal case only if `turn` is
// odd, and the other case only if `turn` is even. Other contenders compute both cases in every turn.
bool is_left_out(const Contender &contender, std::int64_t causal, std::size_t turn) {
  return contender.name == "emulated" && turn % 2 != static_cast<std::size_t>(causal);
}

TEST_P(FusedAttentionKernel, IsTheReferenceForAllSizesAndMasks) {
  unsigned seed = 0;
  std::size_t turn = 0;
  for (const AttentionSizes &sizes : kSizes) {
    ++turn;  // so that other windows are causal than with the last sizes
    for (std::int64_t window : {0, 1, 7, 80}) {
      ++turn;
      for (std::int64_t causal : {0, 1})
        if (!is_left_out(*GetParam(), causal, turn))
          expect_both(*this, forward(sizes, form(causal, window), seed += 3));
    }
  }
}

// The CPU uses larger tiles if a query sees many keys. The first case has queries only for the last 200 positions of
// the keys, the second case for all positions.
TEST_P(FusedAttentionKernel, IsTheReferenceForManyKeys) {
  if (GetParam()->name == "emulated") return;  // it has no larger tiles, and is slow
  unsigned seed = 0;
  for (const AttentionSizes &sizes :
       {AttentionSizes{1, 200, 1100, 2, 1, 8, 16}, AttentionSizes{1, 1030, 1030, 1, 1, 8, 8}})
    for (std::int64_t causal : {0, 1})
      for (std::int64_t window : {0, 100, 1050}) expect_both(*this, forward(sizes, form(causal, window), seed += 3));
  OneNode node = forward({1, 200, 1100, 2, 1, 8, 16}, form(1, 0, 1.5), 5);
  node.inputs.push_back(random_floats({1, 2, 200, 1100}, 9, -2, 2));
  expect_both(*this, node);
}

TEST_P(FusedAttentionKernel, IsTheReferenceWithinDocuments) {
  if (GetParam()->name != "cpu") return;  // GPUs have no kernel for it
  for (const AttentionSizes &sizes : {AttentionSizes{2, 150, 150, 4, 2, 12, 20}, AttentionSizes{3, 20, 20, 2, 2, 8, 8}})
    for (std::int64_t window : {0, 9}) {
      OneNode node = forward(sizes, form(1, window), 3);
      std::vector<std::int64_t> first;
      for (std::int64_t b = 0; b < sizes.batch; ++b)
        for (std::int64_t i = 0, begin = 0; i < sizes.queries; ++i) {
          if ((i + b) % 7 == 3 && i % 3 != 0) begin = i;  // documents of many lengths, others in each sample
          first.push_back(begin);
        }
      node.inputs.resize(4);
      node.inputs.push_back(Array::from_integers({DType::i64, {sizes.batch, sizes.queries}}, first));
      expect_both(*this, node);
      node.inputs[3] = random_floats({1, sizes.heads, window > 0 ? 1 : sizes.queries, sizes.keys}, 9, -1, 1);
      expect_both(*this, node);
      if (sizes.queries > 20) continue;  // larger sums are rounded more often in narrow types
      // The bias is so large that the exponential of a score overflows float32. A tile can have lanes beyond the last
      // query of a document. These lanes must not get the bias, or they add NaN to the gradients.
      node.inputs[3] = random_floats({1, 1, 1, sizes.keys}, 9, 94, 96);
      expect_reference(backward(node, 77), 2e-4);
    }
}

// Sizes of deep heads. Depths are multiples of 8, as bfloat16 needs. Each size has its own padding and tiling.
const std::vector<AttentionSizes> kDeepSizes = {{2, 33, 33, 2, 1, 40, 48},    {1, 70, 150, 2, 1, 64, 64},
                                                {1, 150, 70, 2, 2, 64, 24},   {1, 65, 65, 1, 1, 96, 96},
                                                {1, 66, 130, 2, 1, 128, 128}, {1, 40, 70, 1, 1, 112, 128},
                                                {1, 70, 100, 2, 1, 256, 256}, {1, 33, 40, 1, 1, 136, 192},
                                                {1, 20, 20, 1, 1, 264, 264},  {1, 200, 200, 4, 2, 64, 64}};

TEST_P(FusedAttentionKernel, IsTheReferenceForDeepHeads) {
  unsigned seed = 0;
  std::size_t turn = 0;
  for (const AttentionSizes &sizes : kDeepSizes) {
    ++turn;
    for (std::int64_t causal : {0, 1})
      if (!is_left_out(*GetParam(), causal, turn))
        expect_both(*this, forward(sizes, form(causal, 30 * causal, 0, 0.1), seed += 3));
  }
}

TEST_P(FusedAttentionKernel, IsTheReferenceForDeepHeadsWhereABlockHasLittleMemory) {
  if (GetParam()->name != "emulated") return;
  emulation::limit_shared(emulation::kDesktopShared);
  for (const AttentionSizes &sizes : {kDeepSizes[4], kDeepSizes[6], kDeepSizes[7], kDeepSizes[8]})
    expect_both(*this, forward(sizes, form(1, 30, 0, 0.1), 3));
  emulation::limit_shared(emulation::kMostShared);
}

TEST_P(FusedAttentionKernel, GradientsOfHeads128DeepHaveTheSameBitsWhereABlockHasLittleMemory) {
  if (GetParam()->name != "emulated") return;
  OneNode node = backward(forward({1, 150, 150, 2, 1, 128, 128}, form(1, 90, 0, 0.1), 3), 77);
  for (std::size_t i = 0; i < 5; ++i)
    node.inputs[i] = Array::from_doubles({DType::bf16, node.inputs[i].shape()}, node.inputs[i].doubles());
  const std::vector<Array> much = results_of(node, GetParam()->ways[0]);
  emulation::limit_shared(emulation::kDesktopShared);
  const std::vector<Array> little = results_of(node, GetParam()->ways[0]);
  emulation::limit_shared(emulation::kMostShared);
  ASSERT_EQ(much.size(), 3u);
  for (std::size_t i = 0; i < much.size(); ++i) EXPECT_EQ(much[i].doubles(), little[i].doubles()) << "output " << i;
}

// The heads need more shared memory than a block of threads has. The error must come when the kernel is compiled, not
// in a step.
TEST_P(FusedAttentionKernel, WhoseHeadsNoMemoryOfABlockHoldsIsRefused) {
  if (GetParam()->name != "emulated") return;
  const OneNode node = backward(forward({1, 20, 20, 1, 1, 512, 512}, form(1), 3), 77);
  const auto made = [&] { NodeBench(node, *GetParam()->ways[0].machine); };
  EXPECT_NO_THROW(made());
  emulation::limit_shared(emulation::kDesktopShared);
  const Error error = error_of(made);
  emulation::limit_shared(emulation::kMostShared);
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.text, "heads of 512 need 132416 bytes of shared memory; a block of this GPU has 101376");
}

TEST_P(FusedAttentionKernel, CapsAndBiasesTheScoresOfDeepHeads) {
  const AttentionSizes sizes = kDeepSizes[1];
  for (std::int64_t causal : {0, 1}) {
    OneNode node = forward(sizes, form(causal, 0, 1.5, 0.1), 5);
    expect_both(*this, node);
    node.inputs.push_back(random_floats({sizes.batch, 1, sizes.queries, sizes.keys}, 9, -2, 2));
    expect_both(*this, node);
    node.attributes = form(causal, 40, 0, -0.1);
    expect_both(*this, node);
  }
}

TEST_P(FusedAttentionKernel, GivesTheGradientsThatAreWanted) {
  const OneNode node = backward(forward(kDeepSizes[1], form(1, 0, 0, 0.1), 5), 77);
  for (int wanted = 1; wanted < 8; ++wanted) {
    OneNode some = node;
    some.outputs = {(wanted & 1) != 0, (wanted & 2) != 0, (wanted & 4) != 0};
    expect_reference(some, 2e-5);
  }
}

TEST_P(FusedAttentionKernel, CapsItsScores) {
  for (const AttentionSizes &sizes : {kSizes[1], kSizes[3]})
    for (std::int64_t causal : {0, 1}) expect_both(*this, forward(sizes, form(causal, 0, 1.5), 5));
}

TEST_P(FusedAttentionKernel, AddsABiasOfAnyBroadcastShape) {
  const AttentionSizes sizes = kSizes[3];
  for (int repeated = 0; repeated < 16; ++repeated) {
    OneNode node = forward(sizes, form(repeated & 1, 0, repeated & 2 ? 2.0 : 0.0), 5);
    const Shape full = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
    Shape shape = full;
    for (std::size_t axis = 0; axis < 4; ++axis)
      if (repeated >> axis & 1) shape[axis] = 1;
    node.inputs.push_back(random_floats(shape, 9, -2, 2));
    expect_both(*this, node);
  }
}

TEST_P(FusedAttentionKernel, KeysHiddenByTheBiasCountForNothing) {
  const AttentionSizes sizes{1, 70, 70, 1, 1, 8, 8};
  OneNode node = forward(sizes, form(1), 5);
  std::vector<double> bias(70 * 70, 0);
  for (std::size_t i = 0; i < 70; ++i)
    for (std::size_t j = 0; j < 70; ++j)
      if (j % 3 == 1 || i == 40 || j < 66) bias[i * 70 + j] = i == 40 || j < 66 ? -HUGE_VAL : 0;
  node.inputs.push_back(Array::from_doubles({DType::f32, {1, 1, 70, 70}}, bias));
  expect_both(*this, node);  // queries 0 to 65 see no key at all
}

// A query averages over its keys if a finite bias hides them all. In backward, as in forward, each of its n keys must
// have the probability 1 / n. The rounding of lse, which is about -1e5, changes probabilities by up to 2 %.
TEST_P(FusedAttentionKernel, KeysAllHiddenByAFiniteBiasCountAlike) {
  for (const AttentionSizes &sizes : {kSizes[3], kDeepSizes[0]})
    for (std::int64_t causal : {0, 1}) {
      OneNode node = forward(sizes, form(causal), 5);
      std::vector<double> bias;
      for (std::int64_t i = 0; i < sizes.queries; ++i)
        for (std::int64_t j = 0; j < sizes.keys; ++j) bias.push_back(i % 3 == 1 || j % 2 == 1 ? -1e30 : 0);
      node.inputs.push_back(Array::from_doubles({DType::f32, {1, 1, sizes.queries, sizes.keys}}, bias));
      expect_reference(node, 5e-6);
      expect_reference(backward(node, 77), 2e-2);
    }
}

// If a query sees a single key, the key's probability is 1 whatever the score, so the gradients of q and k are exactly
// 0. Here the gradient kernel reads the outputs of the forward kernel, as it does in training.
TEST_P(FusedAttentionKernel, ScoresOfASingleKeyHaveNoGradient) {
  struct Case {
    AttentionSizes sizes;
    Attributes attributes;
  };
  const std::vector<Case> cases = {{{2, 9, 9, 3, 3, 8, 8}, form(1, 1)},
                                   {{1, 70, 1, 4, 2, 64, 24}, form(0)},
                                   {{1, 5, 1, 2, 2, 20, 12}, form(1, 0, 1.5)},
                                   {{2, 3, 1, 1, 1, 128, 128}, form(0, 0, 0, 0.1)}};
  std::vector<DType> types = GetParam()->narrow();
  types.push_back(DType::f32);
  for (const Contender::Way &way : GetParam()->ways)
    for (const Case &c : cases)
      for (DType type : types) {
        OneNode node = forward(c.sizes, c.attributes, 5);
        for (Array &input : node.inputs) input = Array::from_doubles({type, input.shape()}, input.doubles());
        const std::vector<Array> made = results_of(node, way);
        const Array dout = random_floats(made[0].shape(), 77);
        const OneNode gradient{"FusedAttentionGrad",
                               c.attributes,
                               {Array::from_doubles({type, dout.shape()}, dout.doubles()), node.inputs[0],
                                node.inputs[1], node.inputs[2], made[0], made[1]},
                               {true, true, true}};
        const std::vector<Array> found = results_of(gradient, way);
        for (std::size_t i : {0, 1})
          for (double slope : found[i].doubles())
            ASSERT_EQ(slope, 0) << name_of(type) << ", " << way.name << ", " << to_text(node.inputs[1].type())
                                << ", input " << i;
      }
}

TEST_P(FusedAttentionKernel, LargeScoresDoNotOverflow) {
  OneNode node = forward({1, 40, 40, 2, 2, 8, 8}, form(1), 3);
  for (std::size_t i : {0, 1}) node.inputs[i] = random_floats(node.inputs[i].shape(), 3 + unsigned(i), -40, 40);
  expect_reference(node, 2e-4);  // float32 holds scores of about 1000 to within 6e-5
}

}  // namespace
}  // namespace protrain::test::attention_test
