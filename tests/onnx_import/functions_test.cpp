// Functions in a model: calls that are inlined, and calls that must be refused.
#include <fstream>

#include "fixtures.h"
#include "onnx_import/wire.h"

namespace protrain::onnx_import::functions_test {
namespace {

using test::field;
using test::int_attribute;
using test::Names;
using test::node;
using test::Scratch;
using test::Wire;

// A model's field with a FunctionProto of the domain "own". `rest` holds further fields of the FunctionProto.
std::string function(const std::string &name, const Names &inputs, const Names &outputs, const Names &nodes,
                     const std::string &rest = "") {
  std::string out = field(1, name) + field(10, "own") + field(9, field(2, 18));
  for (const std::string &input : inputs) out += field(4, input);
  for (const std::string &output : outputs) out += field(5, output);
  for (const std::string &one : nodes) out += field(7, one);
  return field(25, out + rest);
}
std::string call(const std::string &name, const Names &inputs, const Names &outputs, const Names &attributes = {}) {
  return node(name, inputs, outputs, attributes) + field(7, "own");
}
std::string reference(const std::string &name, const std::string &to) {
  return field(1, name) + field(20, 2) + field(21, to);
}

class Functions : public testing::Test {
 protected:
  // Imports a model of y = x * w, these nodes and these functions.
  graph::Graph graph(const Names &nodes, const std::string &functions) {
    Wire wire;
    wire.nodes.insert(wire.nodes.end(), nodes.begin(), nodes.end());
    wire.opset += field(8, field(1, "own") + field(2, 1));
    wire.tail = functions;
    return test::open_bytes(scratch_, wire.bytes())->graph({});
  }
  Error error(const Names &nodes, const std::string &functions) {
    return test::error_of([&] { graph(nodes, functions); });
  }
  void expect(Code code, const std::string &subject, const std::string &text, const Error &error) {
    EXPECT_EQ(error.code, code) << error.text;
    EXPECT_EQ(error.subject, subject);
    EXPECT_NE(error.text.find(text), std::string::npos) << error.text;
  }

  Scratch scratch_;
};

// PyTorch's metadata say that a node is a detach(). The metadata are on the node in the function, or on the node that
// calls the function.
TEST_F(Functions, NodesKeepTheirMetadata) {
  const std::string text =
      "%y : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%x,), kwargs = {})";
  const std::string metadata = field(9, test::pair("pkg.torch.onnx.fx_node", text)), none;
  for (const bool inside : {true, false}) {
    const std::string stops =
        function("Stops", {"a"}, {"b"}, {node("Identity", {"a"}, {"b"}) + (inside ? metadata : none)});
    const graph::Graph found = graph({call("Stops", {"y"}, {"p"}) + (inside ? none : metadata)}, stops);
    EXPECT_TRUE(found.nodes()[1].attributes.has("detach")) << inside;
  }
}

TEST_F(Functions, NamesOfTwoCallsDoNotMeet) {
  const std::string twice = function("Twice", {"a"}, {"c"}, {node("Neg", {"a"}, {"b"}), node("Neg", {"b"}, {"c"})});
  const graph::Graph found =
      graph({call("Twice", {"y"}, {"p"}), call("Twice", {"p"}, {"make_q/b"}), call("Twice", {"p"}, {"q"})}, twice);
  ASSERT_EQ(found.node_count(), 7u);
  const graph::Node &inner = found.nodes()[5];
  EXPECT_EQ(inner.name, "make_q/make_b");
  EXPECT_EQ(found.value(inner.inputs[0]).name, "p");
  EXPECT_EQ(found.value(inner.outputs[0]).name, "make_q/b_1");  // the file uses the name make_q/b
  EXPECT_EQ(found.value(found.nodes()[6].outputs[0]).name, "q");
}

TEST_F(Functions, AttributesComeFromTheCallThePresetOrNobody) {
  const std::string inner =
      function("Inner", {"a"}, {"b"},
               {node("Odd", {"a"}, {"b"}, {reference("i", "given"), reference("j", "preset"), reference("k", "open")})},
               field(6, "given") + field(6, "open") + field(11, int_attribute("preset", 7)));
  const std::string outer = function(
      "Outer", {"a"}, {"b"}, {call("Inner", {"a"}, {"b"}, {reference("given", "of_outer")})}, field(6, "of_outer"));
  const graph::Graph found = graph({call("Outer", {"y"}, {"z"}, {int_attribute("of_outer", 5)})}, inner + outer);
  const graph::Attributes &attributes = found.nodes()[1].attributes;
  EXPECT_EQ(attributes.integer("i", 0), 5);
  EXPECT_EQ(attributes.integer("j", 0), 7);
  EXPECT_FALSE(attributes.has("k"));
}

TEST_F(Functions, OutputsMayBeInputsOrNotAskedFor) {
  const std::string both = function("Both", {"a", "none"}, {"a", "b", "c", "c"},
                                    {node("Neg", {"a"}, {"b"}), node("Odd", {"b", "none"}, {"c"})});
  const graph::Graph found = graph({call("Both", {"y"}, {"same", "", "p", "q"})}, both);
  ASSERT_EQ(found.node_count(), 5u);
  EXPECT_EQ(found.nodes()[2].inputs[1], graph::ValueId::none);
  for (const char *name : {"same", "q"})
    EXPECT_EQ(found.node(found.value(found.find(name)).producer).op, "Identity") << name;
}

TEST_F(Functions, FoundByDomainAndOverload) {
  const std::string two = function("F", {"a"}, {"b"}, {node("Neg", {"a"}, {"b"})}, field(13, "one")) +
                          function("F", {"a"}, {"b"}, {node("Abs", {"a"}, {"b"})}, field(13, "two"));
  EXPECT_EQ(graph({call("F", {"y"}, {"z"}) + field(8, "two")}, two).nodes()[1].op, "Abs");
  EXPECT_EQ(graph({call("F", {"y"}, {"z"}) + field(8, "none")}, two).nodes()[1].op, "own::F");
  expect(Code::graph, "own::F", "duplicate function", error({}, two + two));
}

// A function's operators are those of the opset that the function imports. HardSwish is not in opset 13.
TEST_F(Functions, OperatorsAreThoseOfTheFunctionsOpset) {
  const auto with = [&](const std::string &opset, const std::string &op) {
    const std::string body = node(op, {"a"}, {"b"});
    return error({node("F", {"y"}, {"z"}) + field(7, "f")},
                 field(25, field(1, "F") + field(10, "f") + field(4, "a") + field(5, "b") + field(7, body) + opset));
  };
  EXPECT_EQ(with(field(9, field(2, 13)), "Neg").code, Code::ok);
  expect(Code::unsupported, "make_z/make_b", "HardSwish exists from opset 14",
         with(field(9, field(2, 13)), "HardSwish"));
  expect(Code::unsupported, "make_z/make_b", "does not import", with(field(9, field(1, "d") + field(2, 1)), "Neg"));
  expect(Code::version, "f::F", "9999", with(field(9, field(2, 9999)), "Neg"));
  expect(Code::version, "f::F", "13 at least", with(field(9, field(2, 12)), "Neg"));
}

TEST_F(Functions, CallsInACircleAreRefused) {
  const Names start{call("F", {"y"}, {"z"})};
  expect(Code::graph, "own::F", "own::F -> own::F",
         error(start, function("F", {"a"}, {"b"}, {call("F", {"a"}, {"b"})})));
  expect(Code::graph, "own::F", "own::F -> own::G -> own::F",
         error(start, function("F", {"a"}, {"b"}, {call("G", {"a"}, {"b"})}) +
                          function("G", {"a"}, {"b"}, {call("F", {"a"}, {"b"})})));
  std::string chain;
  for (int i = 0; i < 101; ++i)
    chain += function("F" + (i > 0 ? std::to_string(i) : ""), {"a"}, {"b"},
                      {call("F" + std::to_string(i + 1), {"a"}, {"b"})});
  expect(Code::limit, "own::F100", "deeper than 100", error(start, chain));
}

// F0 has one node or none. Each of the thirty other functions calls the one before it twice, so F0 would be inlined
// 2^30 times.
TEST_F(Functions, WhatGrowsWithoutBoundIsRefused) {
  for (const bool empty : {false, true}) {
    std::string all =
        empty ? function("F0", {"a"}, {"a"}, {}) : function("F0", {"a"}, {"b"}, {node("Neg", {"a"}, {"b"})});
    for (int i = 1; i <= 30; ++i) {
      const std::string below = "F" + std::to_string(i - 1);
      all += function("F" + std::to_string(i), {"a"}, {"c"}, {call(below, {"a"}, {"b"}), call(below, {"b"}, {"c"})});
    }
    expect(Code::limit, scratch_ / "model.onnx", "inlined nodes", error({call("F30", {"y"}, {"z"})}, all));
  }
  // A thousand nodes refer to one long attribute. After inlining, each node would have a copy of it.
  Names nodes;
  for (int i = 0; i < 1000; ++i)
    nodes.push_back(node("Odd", {"a"}, {"b" + std::to_string(i)}, {field(1, "list") + field(20, 7) + field(21, "l")}));
  const std::string list = test::attribute("l", 7, field(8, std::string(100'000, '\1')));
  expect(Code::limit, scratch_ / "model.onnx", "inlined nodes",
         error({call("F", {"y"}, {"z"}, {list})}, function("F", {"a"}, {"b0"}, nodes, field(6, "l"))));
}

TEST_F(Functions, CallsAndFunctionsThatDisagreeAreRefused) {
  const std::string neg = function("F", {"a"}, {"b"}, {node("Neg", {"a"}, {"b"})});
  expect(Code::graph, "make_z", "1 inputs at most", error({call("F", {"y", "x"}, {"z"})}, neg));
  expect(Code::graph, "make_z", "1 outputs at most", error({call("F", {"y"}, {"z", "more"})}, neg));
  expect(Code::graph, "make_z", "given twice",
         error({call("F", {"y"}, {"z"}, {int_attribute("i", 1), int_attribute("i", 1)})}, neg));
  const auto body = [&](const std::string &one, const std::string &rest = "") {
    return error({call("F", {"y"}, {"z"}, {int_attribute("i", 1)})}, function("F", {"a"}, {"b"}, {one}, rest));
  };
  expect(Code::graph, "make_z/make_b", "\"w\", which nothing defines in own::F", body(node("Add", {"a", "w"}, {"b"})));
  expect(Code::graph, "own::F", "defined twice", body(node("Neg", {"a"}, {"a"})));
  expect(Code::graph, "own::F", "no node produces the function's output \"b\"", body(node("Neg", {"a"}, {"c"})));
  expect(Code::graph, "make_z/make_b.i", "\"none\"", body(node("Odd", {"a"}, {"b"}, {reference("i", "none")})));
  expect(Code::graph, "make_z/make_b.i", "of type 1",
         body(node("Odd", {"a"}, {"b"}, {field(1, "i") + field(20, 1) + field(21, "i")}), field(6, "i")));
  expect(Code::graph, "own::F", "listed twice",
         body(node("Neg", {"a"}, {"b"}), field(6, "i") + field(11, int_attribute("i", 1))));
  expect(Code::format, "own::F", "\\x1b", body(node("Neg", {"a"}, {"b"}) + field(3, "\x1b")));
  expect(Code::unsupported, "make_z/make_b.body", "subgraph",
         body(node("Odd", {"a"}, {"b"}, {test::attribute("body", 5, field(6, ""))})));
}

TEST_F(Functions, ExternalDataInsideIsCheckedLikewise) {
  const std::string constant =
      node("Constant", {}, {"c"},
           {test::tensor_attribute("value", test::tensor("", test::kFloat, {1}, test::external("../w", "0", "4")))});
  expect(Code::path, "make_z/make_c", "escapes model directory",
         error({call("F", {"y"}, {"z"})}, function("F", {"a"}, {"b"}, {constant, node("Add", {"a", "c"}, {"b"})})));
}

// ONNX's inliner made functions-flat.onnx from functions.onnx. The library's inliner must give the same nodes.
TEST_F(Functions, FixtureIsItsFlatTwin) {
  const auto nodes = [](const char *name) {
    std::vector<std::string> out;
    const graph::Graph graph = Model::open(test::fixture(name))->graph({{"batch", 2}});
    for (const graph::Node &one : graph.nodes())
      out.push_back(one.op + " " + std::to_string(one.attributes.real("alpha", 0)));
    return out;
  };
  EXPECT_EQ(nodes("functions.onnx"), nodes("functions-flat.onnx"));
}

TEST_F(Functions, AreWrittenOutFlat) {
  const auto model = Model::open(test::fixture("functions.onnx"));
  model->save(scratch_ / "out.onnx", [](const std::string &, std::byte *) { return false; });
  EXPECT_EQ(Model::open(scratch_ / "out.onnx")->graph({{"batch", 2}}).print(), model->graph({{"batch", 2}}).print());
}

}  // namespace
}  // namespace protrain::onnx_import::functions_test
