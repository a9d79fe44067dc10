// to_narrow() turns a float32 graph into bfloat16 or float16. Tests which values are rounded, which stay float32, and
// that the graph computes the same except for rounding.
#include <gtest/gtest.h>

#include "errors.h"
#include "fixtures.h"
#include "onnx_import/model.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::narrow_test {
namespace {

constexpr DType kWide = DType::f32;
constexpr double kLowest = -3.4028234663852886e38;  // the lowest float32

struct Float32 : HandBuilt {
  explicit Float32(DType to) : narrow_type(to) {}
  ValueId data(const std::string &name, Shape shape) { return input(name, std::move(shape), kWide); }
  ValueId weight(const std::string &name, Shape shape) {
    const ValueId id = parameter(name, std::move(shape));
    graph.value(id).type.dtype = kWide;
    return id;
  }
  ValueId scalar(double value) { return number(value, kWide); }
  ValueId mean(ValueId x) { return add("ReduceMean", {x}, {{"keepdims", std::int64_t{0}}}); }

  DType dtype(ValueId id) const { return graph.value(id).type.dtype; }
  const graph::Node &maker(ValueId id) const { return graph.node(graph.value(id).producer); }
  void narrow(ValueId loss) {
    graph.outputs = {loss};
    passes::to_narrow(graph, loss, narrow_type);
  }

  const DType narrow_type;
};

class Narrow : public testing::TestWithParam<DType> {};

TEST_P(Narrow, RoundsParametersAndWhatIsComputedOfThem) {
  Float32 g(GetParam());
  const ValueId x = g.data("x", {2, 3}), w = g.weight("w", {3, 4}), y = g.add("MatMul", {x, w});
  g.narrow(g.mean(g.add("MatMul", {y, g.weight("v", {4, 4})})));
  EXPECT_EQ(g.dtype(w), GetParam());
  EXPECT_EQ(g.dtype(y), GetParam());
  EXPECT_EQ(g.dtype(x), kWide);  // inputs stay float32; a Cast converts them for the product
  EXPECT_EQ(histogram(g.graph).at("Cast"), 2);
}

TEST_P(Narrow, LeavesATeachersLogits) {
  Float32 g(GetParam());
  const ValueId x = g.data("x", {2, 3}), w = g.weight("w", {4, 3}), teacher = g.data("teacher", {2, 4});
  g.narrow(g.add("LinearCrossEntropy", {x, w, teacher}));
  EXPECT_EQ(g.dtype(w), GetParam());
  EXPECT_EQ(g.maker(g.graph.outputs[0]).inputs[2], teacher);
  EXPECT_EQ(g.dtype(g.graph.outputs[0]), kWide);
}

// A loss takes the weights of its rows in float32. Each row picks its weight from a frozen table of the classes'
// weights. So this table must stay float32 too.
TEST_P(Narrow, LeavesTheFrozenWeightsOfALossAsTheyAre) {
  for (const char *op : {"CrossEntropy", "LinearCrossEntropy"}) {
    Float32 g(GetParam());
    const ValueId x = g.data("x", {2, 3}), w = g.weight("w", {4, 3}), of_classes = g.weight("of_classes", {4});
    g.graph.value(of_classes).frozen = true;
    const ValueId labels = g.input("labels", {2}, DType::i64);
    const ValueId weights = g.add("Gather", {of_classes, labels}, {{"axis", std::int64_t{0}}});
    const bool linear = std::string_view(op) == "LinearCrossEntropy";
    const std::vector<ValueId> inputs =
        linear ? std::vector{x, w, labels, ValueId::none, weights}
               : std::vector{g.add("MatMul", {x, g.transpose(w, {1, 0})}), labels, weights};
    g.narrow(g.add_all(op, inputs, {}, linear ? 1 : 2)[0]);
    EXPECT_EQ(g.dtype(w), GetParam()) << op;
    EXPECT_EQ(g.dtype(of_classes), kWide) << op;
    EXPECT_EQ(g.maker(g.graph.outputs[0]).inputs.back(), weights) << op;
    EXPECT_EQ(g.dtype(weights), kWide) << op;
  }
}

TEST_P(Narrow, WidensWeightsOfALossThatAreComputedOfParameters) {
  Float32 g(GetParam());
  const ValueId factors = g.weight("factors", {2}), w = g.weight("w", {4, 3});
  g.graph.value(factors).frozen = true;
  const ValueId weights = g.add("Mul", {factors, g.data("more", {2})});
  g.narrow(g.add("LinearCrossEntropy",
                 {g.data("x", {2, 3}), w, g.input("labels", {2}, DType::i64), ValueId::none, weights}));
  EXPECT_EQ(g.dtype(weights), GetParam());
  EXPECT_EQ(g.dtype(g.maker(g.graph.outputs[0]).inputs[4]), kWide);
}

TEST_P(Narrow, LeavesWhatIsComputedOfInputsAloneUpToWhereItMeetsData) {
  Float32 g(GetParam());
  const ValueId positions = g.data("positions", {2, 4}), angle = g.add("Mul", {positions, g.scalar(0.1)});
  const ValueId cosine = g.add("Cos", {angle}), h = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 4})});
  const ValueId rotated = g.add("Mul", {h, cosine});
  g.narrow(g.mean(g.add("MatMul", {rotated, g.weight("v", {4, 4})})));
  EXPECT_EQ(g.dtype(angle), kWide);
  EXPECT_EQ(g.dtype(cosine), kWide);
  EXPECT_EQ(g.dtype(rotated), GetParam());
}

TEST_P(Narrow, RoundsAConstantOnceForAllThatReadIt) {
  Float32 g(GetParam());
  const ValueId half = g.scalar(0.3), h = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 3})});
  const ValueId first = g.add("Mul", {h, half}), second = g.add("Add", {first, half});
  g.narrow(g.mean(g.add("MatMul", {second, g.weight("v", {3, 3})})));
  const ValueId used = g.maker(first).inputs[1];
  EXPECT_EQ(g.maker(second).inputs[1], used);
  EXPECT_EQ(g.dtype(used), GetParam());
  EXPECT_EQ(g.graph.value(used).array.stored_double(0), GetParam() == DType::f16 ? 0.300048828125 : 0.30078125);
}

TEST_P(Narrow, KeepsTheLowestFloatOfAMaskFinite) {
  Float32 g(GetParam());
  const ValueId seen = g.input("seen", {2, 3}, DType::boolean);
  const ValueId mask = g.add("Where", {seen, g.scalar(0), g.scalar(kLowest)});
  const ValueId h = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 3})});
  const ValueId masked = g.add("Add", {h, mask}), lowest = g.add("Max", {h, g.scalar(kLowest)});
  const ValueId scores = g.add("Softmax", {g.add("Max", {masked, lowest})});
  g.narrow(g.mean(g.add("MatMul", {scores, g.weight("v", {3, 3})})));
  const graph::Node &rounded = g.maker(g.maker(masked).inputs[1]), &cut = g.maker(rounded.inputs[0]);
  EXPECT_EQ(rounded.op, "Cast");
  EXPECT_EQ(cut.op, "Clip");
  EXPECT_EQ(cut.inputs[0], mask);
  for (double bound :
       {cut.attributes.real("min", 0), g.graph.value(g.maker(lowest).inputs[1]).array.stored_double(0)}) {
    EXPECT_LT(bound, GetParam() == DType::f16 ? -65000 : -3.3e38);
    EXPECT_TRUE(std::isfinite(Array::from_doubles({GetParam(), {}}, {bound}).doubles()[0]));
  }
}

// Constants between the last product and the loss stay float32. So the factor 1e6 keeps its value, although it is too
// large for float16.
TEST_P(Narrow, LeavesNumbersThatStayFloat32AsTheyAre) {
  Float32 g(GetParam());
  const ValueId y = g.add("MatMul", {g.data("x", {4, 3}), g.weight("w", {3, 8})});
  const ValueId loss = g.add("Mul", {g.mean(y), g.scalar(1e6)});
  g.narrow(loss);
  EXPECT_EQ(g.graph.value(g.maker(loss).inputs[1]).array.stored_double(0), 1e6);
}

TEST_P(Narrow, KeepsTheLossAndTheWayToItAfterTheLastProductInFloat32) {
  Float32 g(GetParam());
  const ValueId logits = g.add("MatMul", {g.data("x", {4, 3}), g.weight("w", {3, 8})});
  const ValueId labels = g.input("labels", {4, 1}, DType::i64);
  const ValueId scores = g.add("LogSoftmax", {logits});
  const ValueId chosen = g.add("GatherElements", {scores, labels}, {{"axis", std::int64_t{1}}});
  const ValueId loss = g.mean(g.add("Neg", {chosen}));
  g.narrow(loss);
  EXPECT_EQ(g.dtype(loss), kWide);
  EXPECT_EQ(g.dtype(chosen), kWide);
  EXPECT_EQ(g.dtype(scores), kWide);
  EXPECT_EQ(g.dtype(logits), GetParam());
  EXPECT_EQ(g.maker(g.maker(scores).inputs[0]).op, "Cast");
}

TEST_P(Narrow, SumsSquaresInFloat32IfFloat16WouldOverflow) {
  for (const char *op : {"ReduceSum", "ReduceMean"})
    for (const bool by_power : {false, true}) {
      Float32 g(GetParam());
      const ValueId x = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 4})});
      const ValueId square = by_power ? g.add("Pow", {x, g.scalar(2)}) : g.add("Mul", {x, x});
      const ValueId sum = g.add(op, {square}, {{"axes", std::vector<std::int64_t>{1}}}), length = g.add("Sqrt", {sum});
      const ValueId unit = g.add("Div", {x, length});
      g.narrow(g.mean(g.add("MatMul", {unit, g.weight("v", {4, 4})})));
      const DType of_squares = GetParam() == DType::f16 ? kWide : GetParam();
      for (const ValueId id : {square, sum, length, unit}) EXPECT_EQ(g.dtype(id), of_squares) << op;
      EXPECT_EQ(g.dtype(x), GetParam()) << op;
    }
}

// 1e-12 is the least length that PyTorch's normalize() divides by. In float16 it would be 0, and a row of zeros would
// be 0 / 0.
TEST_P(Narrow, DividesByTinyNumbersInFloat32IfFloat16HasNone) {
  const graph::Attributes least = {{"min", 1e-12}, {"max", -kLowest}};
  const DType expected = GetParam() == DType::f16 ? kWide : GetParam();
  for (const bool by_clip : {false, true}) {
    Float32 g(GetParam());
    const ValueId x = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 4})});
    const ValueId most = g.add("ReduceMax", {x}, {{"axes", std::vector<std::int64_t>{1}}});
    const ValueId length = by_clip ? g.add("Clip", {most}, least) : g.add("Add", {most, g.scalar(1e-12)});
    const ValueId unit = g.add("Div", {x, length}), scaled = g.add("Mul", {unit, g.weight("scale", {4})});
    const ValueId inverse = g.add("Mul", {x, g.add("Reciprocal", {length})}), sum = g.add("Add", {inverse, scaled});
    g.narrow(g.mean(g.add("MatMul", {sum, g.weight("v", {4, 4})})));
    for (const ValueId id : {length, unit, inverse}) EXPECT_EQ(g.dtype(id), expected);
    for (const ValueId id : {x, most, scaled, sum}) EXPECT_EQ(g.dtype(id), GetParam());
  }
}

TEST_P(Narrow, IgnoresTheTinyNumbersOfATable) {
  Float32 g(GetParam());
  const ValueId x = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 2})});
  const ValueId sines = g.constant(Array::from_doubles({kWide, {2}}, {1.2e-16, 0.5}));
  const ValueId turned = g.add("Mul", {x, sines});
  g.narrow(g.mean(g.add("MatMul", {turned, g.weight("v", {2, 4})})));
  EXPECT_EQ(g.dtype(turned), GetParam());
}

// A mask of float32 data leaves products narrow, and the number of seen places divides in float32.
TEST_P(Narrow, DividesByNumbersOfDataInFloat32IfFloat16HasNone) {
  Float32 g(GetParam());
  const ValueId x = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 4})});
  const ValueId seen = g.add("Cast", {g.input("seen", {2, 4}, DType::i64)}, {{"to", std::string("float32")}});
  const ValueId masked = g.add("Mul", {x, seen});
  const auto along = [&](ValueId id) { return g.add("ReduceSum", {id}, {{"axes", std::vector<std::int64_t>{1}}}); };
  const ValueId mean = g.add("Div", {along(masked), g.add("Max", {along(seen), g.scalar(1e-9)})});
  g.narrow(g.mean(g.add("MatMul", {g.add("Mul", {x, mean}), g.weight("v", {4, 4})})));
  EXPECT_EQ(g.dtype(masked), GetParam());
  EXPECT_EQ(g.dtype(mean), GetParam() == DType::f16 ? kWide : GetParam());
}

// Places in an image of 300 columns: in bfloat16 they would be even numbers.
TEST_P(Narrow, ComputesWhatBecomesAnIndexInFloat32) {
  Float32 g(GetParam());
  const ValueId angles = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 2})});
  const ValueId grid = g.add("MatMul", {angles, g.constant(Array::filled({kWide, {2, 5}}, 0.1))});
  const ValueId place = g.add("Add", {g.add("Mul", {grid, g.scalar(150)}), g.scalar(149.5)});
  const ValueId first = g.add("Floor", {place}), at = g.add("Cast", {first}, {{"to", std::string("int64")}});
  const ValueId table = g.weight("table", {300, 4}), rows = g.add("Gather", {table, at}, {{"axis", std::int64_t{0}}});
  const ValueId share = g.reshape(g.add("Sub", {place, first}), {2, 5, 1}), read = g.add("Mul", {rows, share});
  g.narrow(g.mean(g.add("MatMul", {read, g.weight("v", {4, 4})})));
  for (const ValueId id : {grid, place, first, share}) EXPECT_EQ(g.dtype(id), kWide);
  for (const ValueId id : {angles, table, rows, read}) EXPECT_EQ(g.dtype(id), GetParam());
}

TEST_P(Narrow, KeepsTheDigitsOfSmallNumbersBesideOne) {
  Float32 g(GetParam());
  const ValueId x = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 4})});
  const ValueId sum = g.add("Add", {x, g.scalar(1)}), log1p = g.add("Log", {sum});
  const ValueId ratio = g.add("Div", {sum, g.add("Sub", {g.scalar(1), x})}), atanh = g.add("Log", {ratio});
  const ValueId power = g.add("Exp", {x}), expm1 = g.add("Sub", {power, g.scalar(1)});
  const ValueId decay = g.add("Exp", {g.add("Neg", {x})}), opacity = g.add("Sub", {g.scalar(1), decay});
  const ValueId log = g.add("Log", {g.add("Sigmoid", {x})}), shifted = g.add("Sub", {x, g.scalar(1)});
  const ValueId logs = g.add("Add", {g.add("Add", {log1p, atanh}), log}), powers = g.add("Add", {expm1, opacity});
  const ValueId all = g.add("Add", {g.add("Add", {logs, powers}), shifted});
  g.narrow(g.mean(g.add("MatMul", {all, g.weight("v", {4, 4})})));
  for (const ValueId id : {sum, ratio, power, expm1, decay, opacity}) EXPECT_EQ(g.dtype(id), kWide);
  for (const ValueId id : {x, g.maker(log).inputs[0], log, shifted, all}) EXPECT_EQ(g.dtype(id), GetParam());
}

TEST_P(Narrow, KeepsRunningSumsInFloat32) {
  Float32 g(GetParam());
  const ValueId x = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 4})});
  const ValueId sums = g.add("CumSum", {x}, {{"axis", std::int64_t{1}}});
  g.narrow(g.mean(g.add("MatMul", {sums, g.weight("v", {4, 4})})));
  EXPECT_EQ(g.dtype(x), GetParam());
  EXPECT_EQ(g.dtype(sums), kWide);
}

TEST_P(Narrow, AsksTheOperatorsWhatTheySumInFloat32) {
  Float32 g(GetParam());
  const ValueId h = g.add("MatMul", {g.data("x", {4, 6}), g.weight("w", {6, 6})});
  const auto normal = g.add_all("LayerNormalization", {h, g.weight("scale", {6}), g.weight("bias", {6})}, {}, 3);
  const auto loss = g.add_all("CrossEntropy", {normal[0], g.input("labels", {4}, DType::i64)}, {}, 2);
  g.narrow(loss[0]);
  EXPECT_EQ(g.dtype(normal[0]), GetParam());
  EXPECT_EQ(g.dtype(normal[1]), kWide);
  EXPECT_EQ(g.dtype(normal[2]), kWide);
  EXPECT_EQ(g.dtype(loss[0]), kWide);
  EXPECT_EQ(g.dtype(loss[1]), kWide);
  EXPECT_EQ(histogram(g.graph).at("Cast"), 1);  // only x is cast; the loss reads the norm's 16-bit result
}

TEST_P(Narrow, LetsABiasOfAttentionStayFloat32) {
  Float32 g(GetParam());
  const ValueId q = g.reshape(g.add("MatMul", {g.data("x", {4, 6}), g.weight("w", {6, 6})}), {1, 4, 2, 3});
  const ValueId bias = g.data("bias", {1, 1, 4, 4});
  const auto out = g.add_all("FusedAttention", {q, q, q, bias}, {}, 2);
  g.narrow(g.mean(g.add("MatMul", {out[0], g.weight("v", {3, 3})})));
  EXPECT_EQ(g.maker(out[0]).inputs[3], bias);
  EXPECT_EQ(g.dtype(out[0]), GetParam());
  EXPECT_EQ(g.dtype(out[1]), kWide);
}

TEST_P(Narrow, RoundsWhatAFileCastsToFloat32OnTheWay) {
  Float32 g(GetParam());
  const ValueId h = g.add("MatMul", {g.data("x", {2, 3}), g.weight("w", {3, 3})});
  const ValueId wider = g.add("Cast", {h}, {{"to", std::string("float64")}});
  const ValueId back = g.add("Cast", {wider}, {{"to", std::string("float32")}});
  g.narrow(g.mean(g.add("MatMul", {back, g.weight("v", {3, 3})})));
  EXPECT_EQ(g.dtype(wider), DType::f64);
  EXPECT_EQ(g.dtype(back), GetParam());
}

TEST_P(Narrow, MeansTheSameButForRounding) {
  Float32 g(GetParam());
  const ValueId h = g.add("MatMul", {g.data("x", {4, 6}), g.weight("w", {6, 6})});
  const ValueId y = g.add_all("LayerNormalization", {g.add("Gelu", {h}), g.weight("scale", {6})}, {}, 3)[0];
  const ValueId loss = g.mean(g.add("Mul", {y, g.add("MatMul", {y, g.weight("v", {6, 6})})}));
  g.graph.outputs = {loss};
  const double wanted = results(g.graph)[0][0];
  g.narrow(loss);
  const double found = results(g.graph)[0][0];
  EXPECT_NE(found, wanted);
  EXPECT_NEAR(found, wanted, 0.03);
}

std::string name_of_type(DType dtype) { return dtype == DType::f16 ? "Float16" : "Bfloat16"; }

INSTANTIATE_TEST_SUITE_P(Types, Narrow, testing::Values(DType::bf16, DType::f16),
                         [](const auto &info) { return name_of_type(info.param); });

class NarrowFixture : public testing::TestWithParam<std::tuple<std::string, DType>> {};

// True for the outputs of a loss, and for an operator's statistics, which are its outputs after the first.
bool stays_float32(const graph::Node &node, std::size_t output) {
  const bool has_statistics = node.op == "FusedAttention" || node.op.ends_with("Normalization");
  return node.op == "LinearCrossEntropy" || (has_statistics && output > 0);
}

TEST_P(NarrowFixture, IsNarrowButForTheLossAndStatisticsAndNeedsNoCasts) {
  const auto &[name, narrow] = GetParam();
  const auto file = onnx_import::Model::open(fixture(name + ".onnx"));
  onnx_import::DimBindings dims;
  for (const std::string &dim : file->symbolic_dims()) dims[dim] = dim == "batch" ? kBatch : kSequence;
  passes::PreparedModel prepared =
      passes::prepare(file->graph(dims), [&](const std::string &name) { return file->load(name); }, {});
  Graph &graph = prepared.graph;
  const Graph before = graph;
  ValueId loss = ValueId::none;
  for (ValueId out : graph.outputs)
    if (element_count(graph.value(out).type.shape) == 1) loss = out;
  passes::to_narrow(graph, loss, narrow);
  ASSERT_NO_THROW(graph::verify(graph));
  EXPECT_EQ(histogram(graph), histogram(before));
  EXPECT_EQ(graph.value(loss).type, before.value(loss).type);
  for (ValueId id : graph.parameters) EXPECT_EQ(graph.value(id).type.dtype, narrow) << graph.value(id).name;
  for (const graph::Node &node : graph.nodes())
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == ValueId::none || !is_float(graph.value(node.outputs[i]).type.dtype)) continue;
      EXPECT_EQ(graph.value(node.outputs[i]).type.dtype, stays_float32(node, i) ? kWide : narrow)
          << node.op << " " << node.name;
      EXPECT_EQ(graph.value(node.outputs[i]).type.shape, before.value(node.outputs[i]).type.shape);
    }
}

INSTANTIATE_TEST_SUITE_P(Files, NarrowFixture,
                         testing::Combine(testing::ValuesIn(model_files()), testing::Values(DType::bf16, DType::f16)),
                         [](const auto &info) {
                           return case_name(std::get<0>(info.param) + "_" + name_of_type(std::get<1>(info.param)));
                         });

// Some exporters of float32 models compute a variance in float64, for which devices have no kernels. It must be
// computed in float32.
TEST(Doubles, OfAFloat32GraphBecomeFloat32) {
  Float32 m(kWide);
  const Attributes to_double = {{"to", std::string("float64")}}, to_float = {{"to", std::string("float32")}};
  const ValueId x = m.data("x", {2, 3});
  const ValueId wide = m.add("Cast", {m.add("Mul", {x, m.weight("w", {3})})}, to_double);
  const ValueId kept = m.add("Max", {m.mean(m.add("Mul", {wide, wide})), m.number(kLowest * 10)});
  m.graph.outputs = {m.add("Cast", {kept}, to_float)};
  EXPECT_TRUE(passes::doubles_to_floats(m.graph));
  for (const graph::Node &node : m.graph.nodes())
    for (const ValueId id : node.inputs) EXPECT_EQ(m.dtype(id), kWide) << node.op;
  EXPECT_EQ(m.graph.value(m.maker(m.maker(m.graph.outputs[0]).inputs[0]).inputs[1]).array.doubles()[0], kLowest);
  EXPECT_NO_THROW(graph::verify(m.graph));
  EXPECT_FALSE(passes::doubles_to_floats(m.graph));
}

// Hummingbird puts scikit-learn's scalers in front of a float32 network. The numbers of the scalers are parameters in
// float64. They cannot be trained in float64, but they may be frozen.
TEST(Doubles, AmongParametersOfAFloat32GraphAreRefusedUnlessTheyAreFrozen) {
  Float32 m(kWide);
  const ValueId wide = m.add("Cast", {m.data("x", {2, 3})}, {{"to", std::string("float64")}});
  const ValueId scaled = m.add("Mul", {wide, m.initializer("m.scale", {3})});
  const ValueId x = m.add("Cast", {scaled}, {{"to", std::string("float32")}});
  m.graph.outputs = {m.add("MatMul", {x, m.initializer("m.weight", {3, 4}, kWide)})};
  const auto load = [&](const std::string &name) { return some_values(m.graph.value(m.graph.find(name)).type, 7); };
  const Error error = error_of([&] { passes::prepare(m.graph, load, {}); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.subject, "m.scale");
  EXPECT_NE(error.text.find("name it by frozen"), std::string::npos) << error.text;
  passes::Choices choices;
  choices.frozen = {"m.scale"};
  EXPECT_EQ(error_of([&] { passes::prepare(m.graph, load, choices); }).text, "");
}

}  // namespace
}  // namespace protrain::test::narrow_test
