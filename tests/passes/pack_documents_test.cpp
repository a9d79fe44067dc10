// Windows that hold several documents: what the pass puts into a graph, and what it refuses.
#include "passes/pack_documents.h"

#include <gtest/gtest.h>

#include "errors.h"
#include "passes/hand_built.h"

namespace protrain::test::pack_documents_test {
namespace {

constexpr std::int64_t kBatch = 2, kLength = 6, kWidth = 8;

// A layer of attention over the sum of token embeddings and position embeddings. Returns its output (B * S, D).
ValueId attend(HandBuilt &b, std::int64_t causal = 1) {
  const ValueId ids = b.input("ids", {kBatch, kLength}, DType::i64);
  const ValueId words = b.add("Gather", {b.parameter("words", {10, kWidth}), ids}, {{"axis", std::int64_t{0}}});
  const ValueId x = b.add("Add", {words, b.parameter("places", {kLength, kWidth})});
  const ValueId heads = b.reshape(x, {kBatch, kLength, 2, kWidth / 2});
  const ValueId out = b.add_all("FusedAttention", {heads, heads, heads}, {{"causal", causal}}, 2)[0];
  return b.reshape(out, {kBatch * kLength, kWidth});
}

std::string refusal(HandBuilt &b, ValueId output) {
  b.graph.outputs = {output};
  const Error error = error_of([&] { passes::pack_documents(b.graph, "positions"); });
  return error.code == Code::unsupported ? error.text.substr(0, error.text.find(',')) : "taken";
}

std::vector<double> results(const Graph &graph, const Integers &ids, const Integers &positions) {
  std::map<ValueId, Array> bound;
  unsigned seed = 1;
  for (ValueId id : graph.parameters) {
    std::vector<double> values(static_cast<std::size_t>(element_count(graph.value(id).type.shape)));
    for (double &value : values) value = std::sin(++seed);
    bound[id] = Array::from_doubles(graph.value(id).type, values);
  }
  bound[graph.find("ids")] = Array::from_integers({DType::i64, {kBatch, kLength}}, ids);
  if (!positions.empty())
    bound[graph.find("positions")] = Array::from_integers({DType::i64, {kBatch, kLength}}, positions);
  return ops::interpret(graph, bound)[graph::index(graph.outputs[0])].doubles();
}

TEST(PackDocuments, MakesEachDocumentWhatItIsAlone) {
  HandBuilt b;
  const ValueId out = b.reshape(attend(b), {kBatch, kLength, kWidth});
  const ValueId added = b.add("MatMul", {out, b.parameter("w", {kWidth, kWidth}), out});
  b.graph.outputs = {b.add("Tanh", {added})};
  Graph packed = b.graph;
  passes::pack_documents(packed, "positions");
  graph::verify(packed);
  EXPECT_EQ(packed.inputs.size(), 2u);
  const std::vector<double> together =
      results(packed, {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}, {0, 1, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2});
  struct Document {
    Integers ids;
    std::size_t row;
  };
  for (const Document &one : {Document{{1, 2}, 0}, {{3, 4, 5, 6}, 2}, {{7, 8, 9}, 6}, {{0, 1, 2}, 9}}) {
    Integers ids = one.ids;
    ids.resize(kBatch * kLength, 3);
    const std::vector<double> alone = results(b.graph, ids, {});
    for (std::size_t i = 0; i < one.ids.size() * kWidth; ++i)
      EXPECT_NEAR(alone[i], together[one.row * kWidth + i], 1e-12) << one.row << " " << i;
  }
}

TEST(PackDocuments, RefusesWhatCarriesSomethingFromOneTokenToAnother) {
  const Integers tokens = {1};
  HandBuilt pooled;
  const ValueId windows = pooled.reshape(attend(pooled), {kBatch, kLength, kWidth});
  EXPECT_EQ(refusal(pooled, pooled.add("ReduceMean", {windows}, {{"axes", tokens}})),
            "ReduceMean works along the tokens");

  HandBuilt shifted;  // each token and the one before it
  const ValueId all = shifted.reshape(attend(shifted), {kBatch, kLength, kWidth});
  const ValueId before = shifted.slice(all, 1, 0, kLength - 1), after = shifted.slice(all, 1, 1, kLength);
  EXPECT_EQ(refusal(shifted, shifted.add("Add", {before, after})), "Add mixes tokens of different places");

  HandBuilt reversed;
  const ValueId forwards = reversed.reshape(attend(reversed), {kBatch, kLength, kWidth});
  const ValueId backwards = reversed.add(
      "Slice", {forwards},
      {{"starts", Integers{-1}}, {"ends", Integers{INT64_MIN}}, {"axes", Integers{-2}}, {"steps", Integers{-1}}});
  EXPECT_EQ(refusal(reversed, backwards), "Slice takes tokens in another order");

  HandBuilt mixed;
  const ValueId turned = mixed.transpose(mixed.reshape(attend(mixed), {kBatch, kLength, kWidth}), {0, 2, 1});
  const ValueId product = mixed.add("MatMul", {turned, mixed.parameter("w", {kLength, 3})});
  EXPECT_EQ(refusal(mixed, product), "MatMul sums over tokens");

  HandBuilt shifted_sum;  // of a product for each token and the token before it
  const ValueId rows = shifted_sum.reshape(attend(shifted_sum), {kBatch, kLength, kWidth});
  const ValueId later = shifted_sum.slice(rows, 1, 1, kLength), earlier = shifted_sum.slice(rows, 1, 0, kLength - 1);
  EXPECT_EQ(
      refusal(shifted_sum, shifted_sum.add("MatMul", {later, shifted_sum.parameter("w", {kWidth, kWidth}), earlier})),
      "MatMul adds tokens of different places");

  HandBuilt split;
  EXPECT_EQ(refusal(split, split.reshape(attend(split), {kBatch, kLength / 2, 2 * kWidth})),
            "Reshape takes windows of tokens apart");

  HandBuilt both_ways;
  EXPECT_EQ(refusal(both_ways, attend(both_ways, 0)), "FusedAttention lets tokens see what comes after them");

  HandBuilt none;
  EXPECT_EQ(refusal(none, none.add("Tanh", {none.input("x", {kBatch, kLength})})),
            "the model has no attention in a form that is recognised");
}

TEST(PackDocuments, TakesPositionsThatTheModelHas) {
  HandBuilt b;
  const ValueId own = b.input("positions", {kBatch, kLength}, DType::i64);
  const ValueId places = b.add("Gather", {b.parameter("more", {9, kWidth}), own}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("Add", {b.reshape(attend(b), {kBatch, kLength, kWidth}), places})};
  passes::pack_documents(b.graph, "positions");
  EXPECT_EQ(b.graph.inputs.size(), 2u);

  HandBuilt other;
  other.input("positions", {kBatch, kLength});
  other.graph.outputs = {attend(other)};
  EXPECT_EQ(error_of([&] { passes::pack_documents(other.graph, "positions"); }).code, Code::arg) << "float64";
}

}  // namespace
}  // namespace protrain::test::pack_documents_test
