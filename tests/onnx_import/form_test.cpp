// The conversion of a file to a graph: constants, attributes, forms of older opsets, dims.
#include <limits>

#include "onnx_import/wire.h"

namespace protrain::onnx_import::form_test {
namespace {

using graph::Origin;
using graph::ValueId;
using test::attribute;
using test::field;
using test::floats;
using test::int_attribute;
using test::kBool;
using test::kDouble;
using test::kFloat;
using test::kInt32;
using test::kInt64;
using test::node;
using test::Scratch;
using test::tensor;
using test::tensor_attribute;
using test::Wire;

class Form : public testing::Test {
 protected:
  graph::Graph graph(const Wire &wire, const DimBindings &dims = {}) {
    return test::open_bytes(scratch_, wire.bytes())->graph(dims);
  }
  // The array that a Constant node with this attribute becomes.
  graph::Array constant(const std::string &value) {
    Wire wire;
    wire.nodes.push_back(node("Constant", {}, {"c"}, {value}));
    const graph::Graph found = graph(wire);
    return found.value(found.find("c")).array;
  }

  Scratch scratch_;
};

TEST_F(Form, SmallModelIsReadAsWritten) {
  const graph::Graph found = graph(Wire());
  ASSERT_EQ(found.node_count(), 1u);
  const graph::Node &matmul = found.nodes()[0];
  EXPECT_EQ(matmul.op, "MatMul");
  EXPECT_EQ(matmul.name, "make_y");
  EXPECT_EQ(found.value(matmul.inputs[0]).origin, Origin::input);
  EXPECT_EQ(found.value(matmul.inputs[1]).origin, Origin::initializer);
  EXPECT_EQ(found.value(matmul.inputs[1]).type, (graph::Type{DType::f32, {3, 4}}));
  EXPECT_EQ(found.outputs, matmul.outputs);
  EXPECT_EQ(found.value(found.outputs[0]).type.dtype, DType::none);
}

TEST_F(Form, AFirstOutputThatIsAbsentIsAValueThatNothingReads) {
  Wire wire;
  wire.nodes = {node("MatMul", {"x", "w"}, {"z"}), node("LayerNormalization", {"z", "w"}, {"", "y"})};
  const graph::Graph found = graph(wire);
  const std::vector<ValueId> outputs = found.nodes()[1].outputs;
  ASSERT_EQ(outputs.size(), 2u);
  ASSERT_NE(outputs[0], ValueId::none);
  EXPECT_TRUE(found.consumers()[index(outputs[0])].empty());
  EXPECT_EQ(outputs[1], found.find("y"));
}

TEST_F(Form, AnIdentityThatPyTorchWroteForDetachStopsGradients) {
  const auto is_detach = [&](const std::string &op, const std::string &call) {
    Wire wire;
    const std::string metadata = test::pair("pkg.torch.onnx.fx_node", "%y : [num_users=1] = call_function" + call);
    wire.nodes = {node(op, {"x"}, {"y"}) + field(9, metadata)};
    return graph(wire).nodes()[0].attributes.has("detach");
  };
  EXPECT_TRUE(is_detach("Identity", "[target=torch.ops.aten.detach.default](args = (%x,))"));
  EXPECT_FALSE(is_detach("Identity", "[target=torch.ops.aten.clone.default](args = (%detach,))"));
  EXPECT_FALSE(is_detach("Relu", "[target=torch.ops.aten.detach.default](args = (%x,))"));
}

TEST_F(Form, NoFileSetsTheAttributesThatTheLibrarySets) {
  for (const char *name : {"detach", "padding_idx", "trans_a", "trans_b", "alpha", "zero_row"}) {
    Wire wire;
    wire.nodes = {node("MatMul", {"x", "w"}, {"y"}, {int_attribute(name, 1)})};
    EXPECT_FALSE(graph(wire).nodes()[0].attributes.has(name)) << name;
  }
}

TEST_F(Form, AGatherThatPyTorchWroteForAnEmbeddingKnowsItsPadding) {
  const auto padding_of = [&](const std::string &call) {
    Wire wire;
    const std::string metadata = test::pair("pkg.torch.onnx.fx_node", "%y : [num_users=1] = call_function" + call);
    wire.inputs = {test::value("x", kInt64, {"2", "3"})};
    wire.nodes = {node("Gather", {"w", "x"}, {"y"}) + field(9, metadata)};
    return graph(wire).nodes()[0].attributes.integer("padding_idx", -1);
  };
  EXPECT_EQ(padding_of("[target=torch.ops.aten.embedding.default](args = (%w, %x, 2), kwargs = {})"), 2);
  EXPECT_EQ(padding_of("[target=torch.ops.aten.embedding.default](args = (%w, %x, 10, True), kwargs = {})"), 10);
  EXPECT_EQ(padding_of("[target=torch.ops.aten.embedding.default](args = (%w, %x), kwargs = {})"), -1);
  EXPECT_EQ(padding_of("[target=torch.ops.aten.embedding.default](args = (%w, %x, -1), kwargs = {})"), -1);
  EXPECT_EQ(padding_of("[target=torch.ops.aten.select.int](args = (%w, 0, 2), kwargs = {})"), -1);
}

TEST_F(Form, ConstantNodesOfEveryFormBecomeConstants) {
  EXPECT_EQ(constant(int_attribute("value_int", -7)).integers(), std::vector<std::int64_t>{-7});
  EXPECT_EQ(constant(int_attribute("value_int", -7)).type(), (graph::Type{DType::i64, {}}));
  const graph::Array list = constant(attribute("value_ints", 7, field(8, 3) + field(8, -1)));
  EXPECT_EQ(list.type(), (graph::Type{DType::i64, {2}}));
  EXPECT_EQ(list.integers(), (std::vector<std::int64_t>{3, -1}));
  const graph::Array real = constant(attribute("value_float", 1, test::tag(2, 5) + test::raw<float>({0.5f})));
  EXPECT_EQ(real.type(), (graph::Type{DType::f32, {}}));
  EXPECT_EQ(real.doubles(), std::vector<double>{0.5});
  const graph::Array reals = constant(attribute("value_floats", 6, field(7, test::raw<float>({0.5f, 2.f}))));
  EXPECT_EQ(reals.doubles(), (std::vector<double>{0.5, 2}));
  const graph::Array held = constant(tensor_attribute("value", floats("", {2}, {3, 4})));
  EXPECT_EQ(held.doubles(), (std::vector<double>{3, 4}));
}

TEST_F(Form, TensorsAreReadFromEveryField) {
  const auto read = [&](const std::string &data) { return constant(tensor_attribute("value", data)); };
  const auto packed = [](const std::vector<std::int64_t> &values) {
    std::string out;
    for (const std::int64_t value : values) out += test::varint(static_cast<std::uint64_t>(value));
    return out;
  };
  EXPECT_EQ(read(tensor("", kFloat, {2}, field(4, test::raw<float>({1.5f, -2.f})))).doubles(),
            (std::vector<double>{1.5, -2}));
  EXPECT_EQ(read(tensor("", kDouble, {1}, field(10, test::raw<double>({0.1})))).doubles(), std::vector<double>{0.1});
  EXPECT_EQ(read(tensor("", kInt32, {2}, field(5, packed({7, -7})))).integers(), (std::vector<std::int64_t>{7, -7}));
  EXPECT_EQ(read(tensor("", kBool, {2}, field(5, packed({1, 0})))).integers(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(read(tensor("", kInt64, {2}, field(7, packed({std::numeric_limits<std::int64_t>::min(), 1})))).integers(),
            (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), 1}));
  std::vector<std::int64_t> many(3000);  // long enough to stay in the file
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i * i) - 1000;
  EXPECT_EQ(read(tensor("", kInt64, {3000}, field(7, packed(many)))).integers(), many);
  EXPECT_EQ(read(tensor("", kInt32, {3000}, field(5, packed(many)))).integers(), many);
}

TEST_F(Form, AttributesKeepTheirKindsAndTypesGoByName) {
  Wire wire;
  wire.nodes = {
      node("Cast", {"x"}, {"z"}, {int_attribute("to", kDouble)}),
      node("Odd", {"z", "", "w"}, {"y"},
           {int_attribute("i", -3), attribute("f", 1, test::tag(2, 5) + test::raw<float>({0.25f})),
            attribute("s", 3, field(4, "tanh")), attribute("is", 7, field(8, test::varint(4) + test::varint(5))),
            attribute("none", 7, ""), tensor_attribute("t", floats("", {1}, {9}))})};
  const graph::Graph found = graph(wire);
  EXPECT_EQ(found.nodes()[0].attributes.text("to", ""), "float64");
  const graph::Node &odd = found.nodes()[1];
  EXPECT_EQ(odd.attributes.integer("i", 0), -3);
  EXPECT_EQ(odd.attributes.real("f", 0), 0.25);
  EXPECT_EQ(odd.attributes.text("s", ""), "tanh");
  EXPECT_EQ(odd.attributes.integers("is"), (std::vector<std::int64_t>{4, 5}));
  EXPECT_TRUE(odd.attributes.has("none"));
  EXPECT_EQ(odd.attributes.array("t")->doubles(), std::vector<double>{9});
  ASSERT_EQ(odd.inputs.size(), 3u);
  EXPECT_EQ(odd.inputs[1], ValueId::none);
}

TEST_F(Form, NodesAreSortedAndOtherDomainsKeepTheirName) {
  Wire wire;
  wire.nodes = {node("MatMul", {"z", "w"}, {"y"}), node("FastGelu", {"x"}, {"z"}) + field(7, "com.microsoft")};
  wire.opset += field(8, field(1, "com.microsoft") + field(2, 1));
  const graph::Graph found = graph(wire);
  EXPECT_EQ(found.nodes()[0].op, "com.microsoft::FastGelu");
  EXPECT_EQ(found.nodes()[1].op, "MatMul");
}

// Some quantisers of ONNX Runtime (RTN, k-quant) leave its domain, com.microsoft, out of opset_import. ONNX Runtime
// reads these files all the same.
TEST_F(Form, TheDomainOfOnnxRuntimeNeedsNoImport) {
  Wire wire;
  wire.nodes = {node("MatMul", {"z", "w"}, {"y"}), node("FastGelu", {"x"}, {"z"}) + field(7, "com.microsoft")};
  EXPECT_EQ(graph(wire).nodes()[0].op, "com.microsoft::FastGelu");
  wire.nodes[1] = node("FastGelu", {"x"}, {"z"}) + field(7, "com.example");
  const Error error = test::error_of([&] { graph(wire); });
  EXPECT_EQ(error.code, Code::unsupported) << error.text;
}

TEST_F(Form, DropoutThatDoesNotTrainIsIdentity) {
  Wire wire;
  wire.initializers.push_back(tensor("ratio", kFloat, {}, test::raw_data(test::raw<float>({0.5f}))));
  wire.initializers.push_back(tensor("off", kBool, {}, test::raw_data(std::string(1, '\0'))));
  wire.initializers.push_back(tensor("on", kBool, {}, test::raw_data(std::string(1, '\1'))));
  wire.nodes = {node("Dropout", {"x"}, {"a", "mask"}), node("Dropout", {"a", "ratio", "off"}, {"b"}),
                node("Dropout", {"b", "ratio", "on"}, {"c"}), node("Dropout", {"c"}, {"d", "read_mask"}),
                node("Where", {"read_mask", "d", "w"}, {"y"})};
  const graph::Graph found = graph(wire);
  EXPECT_EQ(found.nodes()[0].op, "Identity");
  EXPECT_EQ(found.nodes()[0].outputs.size(), 1u);
  EXPECT_EQ(found.nodes()[1].op, "Identity");
  EXPECT_EQ(found.nodes()[1].inputs.size(), 1u);
  EXPECT_EQ(found.nodes()[2].op, "Dropout");
  EXPECT_EQ(found.nodes()[3].op, "Dropout");
}

TEST_F(Form, SplitWithoutSizesCountsItsOutputs) {
  Wire wire;
  wire.nodes = {node("Split", {"x"}, {"y", "z"}, {int_attribute("axis", 1)})};
  EXPECT_EQ(graph(wire).nodes()[0].attributes.integer("num_outputs", 0), 2);
}

// A node in the form of an older opset, and the node that it becomes in the graph.
struct OlderCase {
  std::int64_t opset;
  std::string before;
  std::string op, attributes;
  std::size_t inputs;
};

TEST_F(Form, OlderFormsBecomeTheNewest) {
  const std::string scales = attribute("scales", 6, field(7, test::raw<float>({1.f, 2.f})));
  const std::string bilinear = attribute("mode", 3, field(4, "bilinear"));
  const std::string corner = "coordinate_transformation_mode=asymmetric, mode=";
  const std::vector<OlderCase> cases = {
      {12, node("Softmax", {"x"}, {"y"}), "Softmax", "axis=1, flattens=1", 1},
      {11, node("LogSoftmax", {"x"}, {"y"}, {int_attribute("axis", 0)}), "LogSoftmax", "axis=0, flattens=1", 1},
      {13, node("Softmax", {"x"}, {"y"}), "Softmax", "", 1},
      {7, node("Upsample", {"x"}, {"y"}, {scales}), "Resize", corner + "nearest, nearest_mode=opset10", 3},
      {9, node("Upsample", {"x", "w"}, {"y"}, {bilinear}), "Resize", corner + "linear, nearest_mode=opset10", 3},
      {10, node("Resize", {"x", "w"}, {"y"}), "Resize", corner + "nearest, nearest_mode=opset10", 3},
      {9, node("Scatter", {"x", "w", "x"}, {"y"}), "ScatterElements", "", 3},
      {8, node("ConstantFill", {"w"}, {"y"}, {int_attribute("input_as_shape", 1)}), "ConstantOfShape",
       "value=<float32[]>", 1},
  };
  for (const OlderCase &one : cases) {
    Wire wire;
    wire.opset = field(8, field(2, one.opset));
    wire.nodes = {one.before};
    const graph::Graph found = graph(wire);
    const graph::Node &made = found.nodes().at(0);
    EXPECT_EQ(made.op, one.op);
    EXPECT_EQ(made.attributes.print(), one.attributes);
    EXPECT_EQ(made.inputs.size(), one.inputs);
    if (one.opset == 7) {
      EXPECT_EQ(found.value(made.inputs[2]).array.doubles(), (std::vector<double>{1, 2}));
    }
  }
}

TEST_F(Form, OlderFormsAreCheckedAgainstTheirOpset) {
  const auto expect = [&](std::int64_t opset, const std::string &of, Code code, const std::string &text) {
    Wire wire;
    wire.opset = field(8, field(2, opset));
    wire.nodes = {of};
    const Error error = test::error_of([&] { graph(wire); });
    EXPECT_EQ(error.code, code) << error.text;
    EXPECT_EQ(error.subject, "make_y");
    EXPECT_NE(error.text.find(text), std::string::npos) << error.text;
  };
  const std::string starts = attribute("starts", 7, field(8, 0));
  expect(9, node("Slice", {"x"}, {"y"}, {starts}), Code::graph, "Slice lacks its attribute ends");
  expect(9, node("Slice", {"x", "w", "w"}, {"y"}), Code::graph, "Slice takes 1 inputs at most, not 3");
  expect(10, node("Slice", {"x"}, {"y"}), Code::graph, "Slice takes 3 inputs at least, not 1");
  expect(10, node("Upsample", {"x", "w"}, {"y"}), Code::unsupported, "Upsample exists until opset 9");
  expect(8, node("ConstantFill", {"w"}, {"y"}), Code::unsupported, "only with input_as_shape = 1");
  expect(8, node("Where", {"x", "x", "x"}, {"y"}), Code::unsupported, "Where exists from opset 9");
  expect(8, node("BatchNormalization", {"x", "w", "w", "w", "w"}, {"y"}, {int_attribute("spatial", 0)}),
         Code::unsupported, "spatial is 0");
}

TEST_F(Form, InitializersAmongTheInputsAreNotAskedFor) {
  Wire wire;
  wire.head = field(1, 3);
  wire.inputs.push_back(test::value("w", kFloat, {"3", "4"}));
  const auto model = test::open_bytes(scratch_, wire.bytes());
  ASSERT_EQ(model->inputs().size(), 1u);
  EXPECT_EQ(model->graph({}).inputs.size(), 1u);
}

TEST_F(Form, UnusedInitializersStayOutOfTheGraphButCanBeLoaded) {
  Wire wire;
  wire.initializers.push_back(floats("spare", {1}, {5}));
  const auto model = test::open_bytes(scratch_, wire.bytes());
  EXPECT_EQ(model->graph({}).find("spare"), ValueId::none);
  EXPECT_EQ(model->load("spare").doubles(), std::vector<double>{5});
  EXPECT_EQ(test::error_of([&] { model->load("nothing"); }).code, Code::arg);
}

TEST_F(Form, DimsAreBoundByNameAndNamelessOnesGetOne) {
  Wire wire;
  wire.inputs = {test::value("x", kFloat, {"batch", "3", ""})};
  const auto model = test::open_bytes(scratch_, wire.bytes());
  EXPECT_EQ(model->symbolic_dims(), (std::vector<std::string>{"batch", "x_dim2"}));
  const graph::Graph found = model->graph({{"batch", 5}, {"x_dim2", 2}});
  EXPECT_EQ(found.value(found.inputs[0]).type.shape, (Shape{5, 3, 2}));

  const Error unbound = test::error_of([&] { model->graph({}); });
  EXPECT_EQ(unbound.code, Code::shape);
  EXPECT_NE(unbound.text.find("batch, x_dim2"), std::string::npos) << unbound.text;
  const Error negative = test::error_of([&] { model->graph({{"batch", -1}, {"x_dim2", 2}}); });
  EXPECT_EQ(negative.code, Code::shape);
  EXPECT_EQ(negative.subject, "batch");
  const Error huge = test::error_of([&] {
    model->graph({{"batch", std::int64_t{1} << 40}, {"x_dim2", std::int64_t{1} << 40}});
  });
  EXPECT_EQ(huge.code, Code::shape);
  const Error unknown = test::error_of([&] { model->graph({{"batch", 5}, {"x_dim2", 2}, {"bacth", 5}}); });
  EXPECT_EQ(unknown.code, Code::arg);
  EXPECT_EQ(unknown.subject, "bacth");
  EXPECT_NE(unknown.text.find("batch, x_dim2"), std::string::npos) << unknown.text;
}

TEST_F(Form, DimsThatAreSumsOfOthersNeedNoSize) {
  Wire wire;
  wire.inputs = {test::value("x", kFloat, {"past", "3"}), test::value("m", kFloat, {"past + s", "s+1", "s"}),
                 test::value("n", kFloat, {"other + s"})};
  const auto model = test::open_bytes(scratch_, wire.bytes());
  EXPECT_EQ(model->symbolic_dims(), (std::vector<std::string>{"past", "s", "other + s"}));
  const graph::Graph found = model->graph({{"past", 2}, {"s", 4}, {"other + s", 9}});
  EXPECT_EQ(found.value(found.inputs[1]).type.shape, (Shape{6, 5, 4}));
  EXPECT_NO_THROW(model->graph({{"past", 2}, {"s", 4}, {"other + s", 9}, {"past + s", 6}}));
  const Error other = test::error_of([&] { model->graph({{"past", 2}, {"s", 4}, {"other + s", 9}, {"past + s", 7}}); });
  EXPECT_EQ(other.code, Code::shape);
  EXPECT_EQ(other.text, "bound to 7, and its terms add up to 6");
  const Error huge = test::error_of([&] {
    model->graph({{"past", std::numeric_limits<std::int64_t>::max()}, {"s", 4}, {"other + s", 9}});
  });
  EXPECT_EQ(huge.code, Code::shape);
}

TEST_F(Form, InputsOfNoElementsAreConstants) {
  Wire wire;
  wire.inputs.push_back(test::value("past", kFloat, {"2", "p", "3"}));
  const auto model = test::open_bytes(scratch_, wire.bytes());
  const graph::Graph found = model->graph({{"p", 0}});
  ASSERT_EQ(found.inputs.size(), 1u);
  EXPECT_EQ(found.value(found.inputs[0]).name, "x");
  EXPECT_EQ(found.value(found.find("past")).array.type(), (graph::Type{DType::f32, {2, 0, 3}}));
  EXPECT_EQ(model->graph({{"p", 1}}).inputs.size(), 2u);
}

TEST_F(Form, InputsThatAreBoundToValuesAreConstants) {
  Wire wire;
  wire.inputs.insert(wire.inputs.end(), {test::value("b", kBool, {"1"}), test::value("i", kInt64, {"2", "3"}),
                                         test::value("h", test::kHalf, {}), test::value("u", test::kUint8, {})});
  const auto model = test::open_bytes(scratch_, wire.bytes());
  const graph::Graph found = model->graph({}, {{"b", {0}}, {"i", {4, 5, 6}}, {"h", {0.5}}, {"u", {255}}});
  ASSERT_EQ(found.inputs.size(), 1u);
  const auto array = [&](const char *name) { return found.value(found.find(name)).array; };
  EXPECT_EQ(array("b").type(), (graph::Type{DType::boolean, {1}}));
  EXPECT_EQ(array("i").integers(), (std::vector<std::int64_t>{4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(array("h").type(), (graph::Type{DType::f32, {}}));
  EXPECT_EQ(model->graph({}, {{"i", {1, 2, 3, 4, 5, 6}}}).value(found.find("i")).array.integers().back(), 6);

  const auto refusal = [&](const InputValues &values) { return test::error_of([&] { model->graph({}, values); }); };
  EXPECT_EQ(refusal({{"c", {0}}}).text, "the model has no input c to bind to a value; its inputs are x, b, i, h, u");
  EXPECT_EQ(refusal({{"b", {2}}}).text, "is bound to 2, which is no bool");
  EXPECT_EQ(refusal({{"i", {0.5}}}).text, "is bound to 0.5, which is no int64");
  for (const double beyond : {-1, 256}) EXPECT_EQ(refusal({{"u", {beyond}}}).code, Code::arg) << beyond;
  EXPECT_NE(refusal({{"i", {1, 2}}}).text.find("2 values, and has the shape [2, 3]"), std::string::npos);
}

TEST_F(Form, LaterOpsetsAreReadWhereNoOperatorChanged) {
  Wire wire;
  wire.opset = field(8, field(2, 28));
  EXPECT_EQ(graph(wire).nodes()[0].op, "MatMul");
  wire.nodes.insert(wire.nodes.begin(), node("Reshape", {"x", "w"}, {"z"}));
  const Error error = test::error_of([&] { graph(wire); });
  EXPECT_EQ(error.code, Code::version);
  EXPECT_EQ(error.subject, "make_z");
}

}  // namespace
}  // namespace protrain::onnx_import::form_test
