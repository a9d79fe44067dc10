// The choices among which a search chooses.
#include "plan/space.h"

#include <gtest/gtest.h>

#include "plan/layers.h"

namespace protrain::plan::space_test {
namespace {

// Returns the number of chunks for each chunk size that a search may choose. The graph has two layers, and `others`
// parameters outside of the layers, each with twice the bytes of a layer.
std::vector<std::size_t> chunks_beside(int others) {
  Layers layers(2);
  for (int i = 0; i < others; ++i)
    layers.graph.parameters.push_back(
        layers.graph.add_value({.name = "other",
                                .type = {DType::f32, {2 * Layers::kWeight / sizeof(float)}},
                                .origin = graph::Origin::parameter}));
  layers.terms.trained.assign(layers.graph.parameters.size(), true);
  const profile::Profile machine = layers.machine();
  const Durations durations(machine, layers.graph, layers.terms.optimizer);
  const Outline outline(layers.graph, durations);
  std::vector<std::size_t> chunks;
  for (const std::uint64_t bytes : space_of(layers.graph, outline, durations, layers.terms).chunk_bytes)
    chunks.push_back(cut_chunks(layers.graph, bytes).size());
  return chunks;
}

TEST(Space, HasChunksOfOneBlockAndOfTwo) { EXPECT_EQ(chunks_beside(0), (std::vector<std::size_t>{2, 2, 1})); }

TEST(Space, HasAboutAThousandChunksAtMostHoweverSmallTheBlocks) {
  for (const std::size_t chunks : chunks_beside(10'000)) EXPECT_LT(chunks, 1024u);
}

}  // namespace
}  // namespace protrain::plan::space_test
