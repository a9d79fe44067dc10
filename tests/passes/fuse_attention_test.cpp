// The fusion of attention and of rotary embeddings, which exporters write as several operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::fuse_attention_test {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLowest = -3.4028234663852886e+38;
constexpr std::int64_t kBatch = 2, kHeads = 4, kQueries = 6, kWidth = 4;
const Integers kSwapHeads = {0, 2, 1, 3};

Graph fused(const Graph &before) {
  Graph graph = before;
  passes::clean_up(graph);
  for (int i = 0; i < 4 && passes::fuse(graph); ++i) {
    passes::fold(graph);
    passes::clean_up(graph);
  }
  graph::verify(graph);
  expect_same_results(before, graph);
  return graph;
}

// A causal mask: 0 for visible keys, `hidden` for keys after the query. If `window` is not 0, also `hidden` for keys
// that are `window` or more positions before the query.
Array causal_mask(double hidden, std::int64_t window = 0, std::int64_t keys = kQueries) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < kQueries; ++i)
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::int64_t diagonal = i + keys - kQueries;
      values.push_back(j <= diagonal && (window == 0 || j > diagonal - window) ? 0 : hidden);
    }
  return Array::from_doubles({DType::f64, {1, 1, kQueries, keys}}, values);
}

Attributes last_axis() { return {{"axis", std::int64_t{-1}}}; }

struct Form {
  std::int64_t kv_heads = kHeads;
  bool prescaled = false;       // q and k are each multiplied by the square root of the scale
  bool flat_transpose = false;  // k is transposed as (B * H, S, D)
  bool guard = false;
};

struct AttentionInputs {
  HandBuilt b;
  ValueId q, k, v;
};

// Returns q, k and v of shape (B, H, S, D), made by the nodes that follow the projections in a model.
AttentionInputs heads(Form form) {
  AttentionInputs p;
  const auto head = [&](const char *name, std::int64_t count) {
    const ValueId x = p.b.input(name, {kBatch, kQueries, count * kWidth});
    const ValueId scaled = p.b.add("Mul", {x, p.b.parameter(std::string(name) + "_scale", {count * kWidth})});
    return p.b.transpose(p.b.reshape(scaled, {kBatch, kQueries, count, kWidth}), kSwapHeads);
  };
  const auto repeated = [&](ValueId x) {
    if (form.kv_heads == kHeads) return x;
    const std::int64_t groups = kHeads / form.kv_heads;
    const ValueId apart = p.b.reshape(x, {kBatch, form.kv_heads, 1, kQueries, kWidth});
    const ValueId wide =
        p.b.add("Expand", {apart}, {{"shape", Integers{kBatch, form.kv_heads, groups, kQueries, kWidth}}});
    return p.b.reshape(wide, {kBatch, kHeads, kQueries, kWidth});
  };
  p.q = head("q", kHeads);
  p.k = repeated(head("k", form.kv_heads));
  p.v = repeated(head("v", form.kv_heads));
  return p;
}

ValueId scores(AttentionInputs &p, Form form) {
  HandBuilt &b = p.b;
  ValueId kt = b.transpose(p.k, {0, 1, 3, 2});
  if (form.flat_transpose) {
    const ValueId flat = b.transpose(b.reshape(p.k, {kBatch * kHeads, kQueries, kWidth}), {0, 2, 1});
    kt = b.reshape(flat, {kBatch, kHeads, kWidth, kQueries});
  }
  if (form.prescaled) {
    const ValueId root = b.number(std::sqrt(0.5));
    return b.add("MatMul", {b.add("Mul", {p.q, root}), b.add("Mul", {kt, root})});
  }
  return b.add("Div", {b.add("MatMul", {p.q, kt}), b.number(2)});
}

Graph finish(AttentionInputs &p, ValueId masked, Form form) {
  HandBuilt &b = p.b;
  ValueId probabilities = b.add("Softmax", {masked}, last_axis());
  if (form.guard) probabilities = b.add("Where", {b.add("IsNaN", {probabilities}), b.number(0), probabilities});
  const ValueId out = b.transpose(b.add("MatMul", {probabilities, p.v}), kSwapHeads);
  b.graph.outputs = {b.reshape(out, {kBatch, kQueries, kHeads * kWidth})};
  return b.graph;
}

Graph masked_attention(Form form, const Array &mask) {
  AttentionInputs p = heads(form);
  return finish(p, p.b.add("Add", {scores(p, form), p.b.constant(mask)}), form);
}

void expect_attention(const Graph &graph, std::int64_t causal, std::int64_t window, std::size_t inputs) {
  const graph::Node &attention = only(graph, "FusedAttention");
  EXPECT_EQ(attention.attributes.integer("causal", -1), causal);
  EXPECT_EQ(attention.attributes.integer("window", -1), window);
  EXPECT_NEAR(attention.attributes.real("scale", 0), 0.5, 1e-12);
  EXPECT_EQ(attention.inputs.size(), inputs);
  EXPECT_FALSE(histogram(graph).contains("Transpose")) << graph.print();
  EXPECT_FALSE(histogram(graph).contains("Expand")) << graph.print();
}

}  // namespace

TEST(FuseAttention, FindsEveryFormExportersWrite) {
  for (std::int64_t kv_heads : {kHeads, kHeads / 2})
    for (bool prescaled : {false, true})
      for (bool flat : {false, true})
        for (bool guard : {false, true}) {
          const Form form{kv_heads, prescaled, flat, guard};
          const Graph graph = fused(masked_attention(form, causal_mask(kLowest)));
          expect_attention(graph, 1, 0, 3);
          EXPECT_EQ(graph.value(only(graph, "FusedAttention").inputs[1]).type.shape[2], kv_heads);
        }
}

TEST(FuseAttention, ReadsWindowsFromTheValuesOfMasks) {
  expect_attention(fused(masked_attention({}, causal_mask(-kInfinity, 3))), 1, 3, 3);
  expect_attention(fused(masked_attention({}, Array::filled({DType::f64, {1, 1, 1, kQueries}}, 0))), 0, 0, 3);
}

TEST(FuseAttention, KeepsOtherMasksAsABias) {
  std::vector<double> values = causal_mask(kLowest).doubles();
  values[7] = -0.5;  // a visible key with a penalty
  const Array mask = Array::from_doubles({DType::f64, {1, 1, kQueries, kQueries}}, values);
  expect_attention(fused(masked_attention({}, mask)), 0, 0, 4);
}

TEST(FuseAttention, TakesMasksThatArriveAtRunTime) {
  AttentionInputs p = heads({});
  const ValueId mask = p.b.input("mask", {kBatch, 1, 1, kQueries});
  expect_attention(fused(finish(p, p.b.add("Add", {scores(p, {}), mask}), {})), 0, 0, 4);
}

// A causal mask is combined with a padding mask. The causal mask is constant, and FusedAttention can hide later keys by
// itself. So the fusion must remove the causal mask from the bias, which then has one row for each sample.
TEST(FuseAttention, KeepsOnlyThePaddingOfJoinedMasks) {
  for (const double hidden : {-kInfinity, kLowest})
    for (const std::int64_t window : {0, 3}) {
      AttentionInputs p = heads({});
      Integers visible;
      for (double value : causal_mask(1, window).doubles()) visible.push_back(value == 0);
      const ValueId fixed = p.b.constant(Array::from_integers({DType::boolean, {1, 1, kQueries, kQueries}}, visible));
      const ValueId late = p.b.input("late", {kBatch, 1, 1, kQueries}, DType::boolean);
      const ValueId first =
          p.b.constant(Array::from_integers({DType::boolean, {1, 1, 1, kQueries}}, {1, 1, 1, 1, 0, 0}));
      const ValueId padding = p.b.add("Or", {late, first});  // every query sees a key
      const ValueId bias = p.b.add("Where", {p.b.add("And", {fixed, padding}), p.b.number(0), p.b.number(hidden)});
      const Graph graph = fused(finish(p, p.b.add("Add", {scores(p, {}), bias}), {}));
      if (window == 0) expect_attention(graph, 1, 0, 4);
      const auto attention = std::ranges::find(graph.nodes(), "FusedAttention", &graph::Node::op);
      ASSERT_NE(attention, graph.nodes().end());
      EXPECT_EQ(graph.value(attention->inputs.at(3)).type.shape, (Shape{kBatch, 1, 1, kQueries}));
    }
}

// One mask is doubled 40 times, so it is a sum of 2^40 terms. Another mask is a chain of 100,000 sums, too deep for the
// stack. Neither mask is split.
TEST(FuseAttention, LeavesSumsOfTooManyTerms) {
  for (const bool doubles : {true, false}) {
    AttentionInputs p = heads({});
    const ValueId one = p.b.input("mask", {kBatch, 1, 1, kQueries});
    ValueId sum = one;
    for (int i = 0; i < (doubles ? 40 : 100'000); ++i) sum = p.b.add("Add", {sum, doubles ? sum : one});
    const ValueId bias = p.b.add("Add", {sum, p.b.constant(causal_mask(-kInfinity))});
    Graph graph = finish(p, p.b.add("Add", {scores(p, {}), bias}), {});
    for (int i = 0; i < 3; ++i) {
      passes::fuse(graph);
      passes::clean_up(graph);
    }
    expect_attention(graph, 0, 0, 4);
  }
}

TEST(FuseAttention, TakesBooleanMasksByWhere) {
  AttentionInputs p = heads({});
  std::vector<std::int64_t> visible;
  for (double value : causal_mask(1).doubles()) visible.push_back(value == 0);
  const ValueId mask = p.b.constant(Array::from_integers({DType::boolean, {1, 1, kQueries, kQueries}}, visible));
  expect_attention(fused(finish(p, p.b.add("Where", {mask, scores(p, {}), p.b.number(kLowest)}), {})), 1, 0, 3);
}

TEST(FuseAttention, FollowsHeadsThatWereMergedIntoTheBatch) {
  AttentionInputs p = heads({});
  HandBuilt &b = p.b;
  const Integers flat = {kBatch * kHeads, kQueries, kWidth}, square = {kBatch * kHeads, kQueries, kQueries};
  const ValueId q = b.reshape(b.add("Mul", {p.q, b.number(0.5)}), flat), k = b.reshape(p.k, flat);
  const ValueId product =
      b.reshape(b.add("MatMul", {q, b.transpose(k, {0, 2, 1})}), {kBatch, kHeads, kQueries, kQueries});
  const ValueId masked = b.add("Max", {b.add("Add", {product, b.constant(causal_mask(kLowest))}), b.number(kLowest)});
  const ValueId probabilities = b.add("Softmax", {b.reshape(masked, square)}, last_axis());
  const ValueId out = b.add("MatMul", {probabilities, b.reshape(p.v, flat)});
  const ValueId split = b.transpose(b.reshape(out, {kBatch, kHeads, kQueries, kWidth}), kSwapHeads);
  b.graph.outputs = {b.reshape(split, {kBatch, kQueries, kHeads * kWidth})};
  expect_attention(fused(b.graph), 1, 0, 3);
}

TEST(FuseAttention, FindsSoftCaps) {
  AttentionInputs p = heads({});
  const ValueId capped =
      p.b.add("Mul", {p.b.add("Tanh", {p.b.add("Div", {scores(p, {}), p.b.number(3)})}), p.b.number(3)});
  const Graph graph = fused(finish(p, p.b.add("Add", {capped, p.b.constant(causal_mask(kLowest))}), {}));
  expect_attention(graph, 1, 0, 3);
  EXPECT_NEAR(only(graph, "FusedAttention").attributes.real("softcap", 0), 3, 1e-12);
}

TEST(FuseAttention, WithoutAGuardARowThatSeesNothingStays) {
  std::vector<double> values = causal_mask(-kInfinity).doubles();
  values[0] = -kInfinity;
  const Array mask = Array::from_doubles({DType::f64, {1, 1, kQueries, kQueries}}, values);
  Form guarded;
  guarded.guard = true;
  expect_attention(fused(masked_attention(guarded, mask)), 0, 0, 4);
  Graph bare = masked_attention({}, mask);
  passes::fuse(bare);
  EXPECT_FALSE(histogram(bare).contains("FusedAttention"));
}

// One mask hides the later keys, another mask the earlier keys and the query's own. So all keys of every query are
// hidden. If the masks contain the lowest finite number, the Softmax gives an average over the keys. FusedAttention
// would give 0, so there is no fusion. If the masks contain -infinity, the Softmax gives NaN. The guard turns the NaN
// into 0, which FusedAttention gives too, so the fusion takes place.
TEST(FuseAttention, WithAGuardLeavesFiniteMasksThatTogetherHideAllKeys) {
  Form guarded;
  guarded.guard = true;
  for (const double hidden : {-kInfinity, kLowest}) {
    AttentionInputs p = heads(guarded);
    std::vector<double> others;
    for (const double value : causal_mask(hidden).doubles()) others.push_back(value == 0 ? hidden : 0);
    const Array earlier = Array::from_doubles({DType::f64, {1, 1, kQueries, kQueries}}, others);
    const ValueId later_hidden = p.b.add("Add", {scores(p, guarded), p.b.constant(causal_mask(hidden))});
    Graph graph = finish(p, p.b.add("Add", {later_hidden, p.b.constant(earlier)}), guarded);
    passes::fuse(graph);
    EXPECT_EQ(histogram(graph).contains("FusedAttention"), std::isinf(hidden));
  }
}

TEST(FuseAttention, LeavesALearnedBiasAndProbabilitiesThatOthersRead) {
  AttentionInputs learned = heads({});
  const ValueId bias = learned.b.parameter("bias", {1, kHeads, kQueries, kQueries});
  EXPECT_FALSE(histogram(fused(finish(learned, learned.b.add("Add", {scores(learned, {}), bias}), {})))
                   .contains("FusedAttention"));

  Graph graph = masked_attention({}, causal_mask(kLowest));
  graph.outputs.push_back(only(graph, "Softmax").outputs[0]);
  EXPECT_FALSE(histogram(fused(graph)).contains("FusedAttention"));
}

TEST(FuseAttention, LeavesASoftmaxOverQueries) {
  AttentionInputs p = heads({});
  const ValueId probabilities = p.b.add("Softmax", {scores(p, {})}, {{"axis", std::int64_t{2}}});
  p.b.graph.outputs = {p.b.add("MatMul", {probabilities, p.v})};
  EXPECT_FALSE(histogram(fused(p.b.graph)).contains("FusedAttention"));
}

namespace {

struct RotaryForm {
  bool heads_first = true;
  bool equal_halves = true;
  std::int64_t passed = 0;  // elements of a head that are not rotated
  bool learned = false;     // whether the frequencies are a parameter
};

Graph rotary(RotaryForm form) {
  HandBuilt b;
  const std::int64_t rotated = 4, width = rotated + form.passed;
  const ValueId whole = form.heads_first ? b.transpose(b.input("x", {2, 3, 5, width}), kSwapHeads)
                                         : b.input("x", {2, 3, 5, width});  // 3 positions, 5 heads
  const ValueId x = form.passed > 0 ? b.slice(whole, 3, 0, rotated) : whole;
  std::vector<double> angles;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < rotated; ++j) angles.push_back(i * std::pow(10.0, form.equal_halves ? -(j % 2) : -j));
  const Shape shape = form.heads_first ? Shape{1, 1, 3, rotated} : Shape{1, 3, 1, rotated};
  ValueId angle = b.constant(Array::from_doubles({DType::f64, shape}, angles));
  if (form.learned) {
    const ValueId half = b.add("Mul", {b.slice(angle, -1, 0, 2), b.parameter("frequencies", {2})});
    angle = b.add("Concat", {half, half}, {{"axis", std::int64_t{-1}}});
  }
  const ValueId cos = b.add("Cos", {angle}), sin = b.add("Sin", {angle});
  const ValueId half =
      b.add("Concat", {b.add("Neg", {b.slice(x, -1, 2, 4)}), b.slice(x, -1, 0, 2)}, {{"axis", std::int64_t{-1}}});
  ValueId y = b.add("Add", {b.add("Mul", {x, cos}), b.add("Mul", {half, sin})});
  if (form.passed > 0) y = b.add("Concat", {y, b.slice(whole, 3, rotated, width)}, {{"axis", std::int64_t{3}}});
  b.graph.outputs = {form.heads_first ? b.transpose(y, kSwapHeads) : y};
  return b.graph;
}

}  // namespace

TEST(FuseRotary, FindsBothLayoutsAndPartialRotation) {
  for (bool heads_first : {true, false})
    for (std::int64_t passed : {0, 2}) {
      const Graph graph = fused(rotary({heads_first, true, passed}));
      EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Rotary", 1}})) << graph.print();
      EXPECT_EQ(only(graph, "Rotary").attributes.integer("rotary_dim", 0), 4);
    }
}

TEST(FuseRotary, LeavesHalvesThatDiffer) {
  EXPECT_FALSE(histogram(fused(rotary({true, false, 0}))).contains("Rotary"));
}

// A rotary operator of the file rotates a part of the elements, and a Concat appends the others. The fusion replaces
// all this by one Rotary, which must rotate the same pairs. With `interleaved` 1 these are pairs of neighbouring
// elements.
TEST(FuseRotary, OfAPartKeepsTheOrderOfItsPairs) {
  for (const std::int64_t interleaved : {0, 1}) {
    HandBuilt b;
    const ValueId x = b.input("x", {2, 3, 5, 6});
    const ValueId cos = b.input("cos", {2, 3, 2}), sin = b.input("sin", {2, 3, 2});
    const ValueId turned =
        b.add("Rotary", {b.slice(x, 3, 0, 4), cos, sin},
              {{"interleaved", interleaved}, {"inverse", std::int64_t{0}}, {"rotary_dim", std::int64_t{4}}});
    b.graph.outputs = {b.add("Concat", {turned, b.slice(x, 3, 4, 6)}, {{"axis", std::int64_t{3}}})};
    const Graph graph = fused(b.graph);
    EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Rotary", 1}})) << graph.print();
  }
}

TEST(FuseRotary, LeavesLearnedFrequencies) {
  for (std::int64_t passed : {0, 2})
    EXPECT_FALSE(histogram(fused(rotary({true, true, passed, true}))).contains("Rotary"));
}

}  // namespace protrain::test::fuse_attention_test
