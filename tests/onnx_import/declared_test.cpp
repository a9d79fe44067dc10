// A file's declarations about its initializers (parameter, buffer, constant), as exporters write them. Malformed
// declarations do no harm.
#include <gtest/gtest.h>

#include "onnx_import/wire.h"

namespace protrain::test::declared_test {

namespace {

using graph::StoredKind;

std::string note(const std::string &name, const std::string &key, const std::string &text) {
  return field(13, field(1, name) + field(4, pair(key, text)));
}

graph::FileDeclarations declared(const Wire &wire) {
  const Scratch scratch;
  return open_bytes(scratch, wire.bytes())->declared();
}

constexpr const char *kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char *kFolded = "pkg.onnxscript.optimizer.folded_from";
constexpr const char *kSignature = "pkg.torch.export.ExportedProgram.graph_signature";

}  // namespace

TEST(FileDeclarations, NothingInAFileThatSaysNothing) {
  const graph::FileDeclarations found = declared({});
  EXPECT_FALSE(found.list);
  EXPECT_FALSE(found.updated);
  EXPECT_TRUE(found.kinds.empty());
  EXPECT_TRUE(found.folded_from.empty());
}

TEST(FileDeclarations, AListOfNamesOneALine) {
  Wire wire;
  wire.tail = field(14, pair("other", "w")) + field(14, pair("protrain.parameters", "w\r\n\nm.bias\n"));
  EXPECT_EQ(declared(wire).list, (std::vector<std::string>{"w", "m.bias"}));
  wire.tail = field(14, pair("protrain.parameters", "w\nb\x01"));
  EXPECT_EQ(error_of([&] { declared(wire); }).code, Code::format);
}

TEST(FileDeclarations, KindsAndOriginsOfInitializersAlone) {
  Wire wire;
  wire.graph_extra = note("w", kKind, "PARAMETER") + note("y", kKind, "PARAMETER") +
                     note("w", kFolded, "['lin.weight', 'val_3']") + note("y", kFolded, "['w']");
  const graph::FileDeclarations found = declared(wire);
  EXPECT_EQ(found.kinds, (std::map<std::string, StoredKind>{{"w", StoredKind::parameter}}));
  EXPECT_EQ(found.folded_from, (std::map<std::string, std::vector<std::string>>{{"w", {"lin.weight", "val_3"}}}));
  wire.graph_extra = note("w", kKind, "USER_INPUT") + note("w", kFolded, "['unclosed");
  EXPECT_TRUE(declared(wire).kinds.empty());
  EXPECT_EQ(declared(wire).folded_from.at("w").size(), 0u);
}

// Later versions of PyTorch write the signature of a program as lines of text, earlier versions as printed objects.
TEST(FileDeclarations, SignaturesOfBothForms) {
  const std::map<std::string, StoredKind> kinds = {{"lin.weight", StoredKind::parameter},
                                                   {"bn.running_var", StoredKind::buffer}};
  for (const char *text :
       {"\n# inputs\np_lin_weight: PARAMETER target='lin.weight'\nb_var: BUFFER target='bn.running_var' "
        "persistent=True\n"
        "x: USER_INPUT\n\n# outputs\nadd: BUFFER_MUTATION target='bn.running_mean'\n",
        "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, "
        "arg=TensorArgument(name='p_lin_weight'),"
        " target='lin.weight', persistent=None), InputSpec(kind=<InputKind.BUFFER: 3>, "
        "arg=TensorArgument(name='b_var'),"
        " target='bn.running_var', persistent=True)], output_specs=[OutputSpec(kind=<OutputKind.BUFFER_MUTATION: 3>,"
        " arg=TensorArgument(name='add'), target='bn.running_mean')])"}) {
    Wire wire;
    wire.graph_extra = field(16, pair(kSignature, text));
    EXPECT_EQ(declared(wire).kinds, kinds) << text;
  }
  for (const char *text : {"target='", "PARAMETER target='a", "target='a'", "'''target=''target='PARAMETER'"}) {
    Wire wire;
    wire.graph_extra = field(16, pair(kSignature, text));
    EXPECT_TRUE(declared(wire).kinds.empty()) << text;
  }
}

// y = h - detach(h) with h = x * w. The exporter's optimizer has removed the detach(), so the Sub reads h twice. Only
// the note at the Sub still names the detach().
TEST(FileDeclarations, NodesThatReadADetachThatIsGone) {
  const auto called = [](const std::string &node, const std::string &name, const std::string &call) {
    const std::string text =
        "%" + name + " : [num_users=1] = call_function[target=torch.ops.aten." + call + ", kwargs = {})";
    return node + field(9, pair("pkg.torch.onnx.fx_node", text));
  };
  const auto readers = [](const Names &nodes, const std::string &kind) {
    Wire wire;
    wire.nodes = nodes;
    wire.graph_extra = note("w", kKind, kind);
    return declared(wire).undetached;
  };
  const std::string h = called(node("MatMul", {"x", "w"}, {"h"}), "h", "mm.default](args = (%x, %p_w)");
  const std::string difference = "sub.Tensor](args = (%h, %detach_3)";
  EXPECT_EQ(readers({h, called(node("Sub", {"h", "h"}, {"y"}), "sub", difference)}, "PARAMETER"), Names{"make_y"});
  EXPECT_TRUE(readers({h, called(node("Sub", {"h", "h"}, {"y"}), "sub", difference)}, "BUFFER").empty());
  EXPECT_TRUE(readers({h, called(node("Sub", {"h", "x"}, {"y"}), "sub", difference)}, "PARAMETER").empty());
  const std::string kept = called(node("Identity", {"h"}, {"d"}), "detach_3", "detach.default](args = (%h,)");
  EXPECT_TRUE(readers({h, kept, called(node("Sub", {"h", "d"}, {"y"}), "sub", difference)}, "PARAMETER").empty());
  const std::string other = "sub.Tensor](args = (%h, %detach_map)";
  EXPECT_TRUE(readers({h, called(node("Sub", {"h", "h"}, {"y"}), "sub", other)}, "PARAMETER").empty());
}

TEST(FileDeclarations, LossesWhoseSmoothingTheExporterDropped) {
  const auto losses = [](const std::string &op, const std::string &arguments) {
    const std::string call =
        "%loss : [num_users=1] = call_function[target=torch.ops.aten.cross_entropy_loss.default](args = (" + arguments +
        "), kwargs = {})";
    Wire wire;
    wire.nodes = {node(op, {"x", "x"}, {"y"}) + field(9, pair("pkg.torch.onnx.fx_node", call))};
    return declared(wire).unsmoothed;
  };
  const std::string op = "SoftmaxCrossEntropyLoss";
  EXPECT_EQ(losses(op, "%x, %labels, None, 1, -100, 0.1"), Names{"make_y"});
  EXPECT_EQ(losses(op, "%x, %labels, %weights, 1, -100, 1e-05"), Names{"make_y"});
  EXPECT_TRUE(losses(op, "%x, %labels, None, 1, -100, 0.0").empty());
  EXPECT_TRUE(losses(op, "%x, %labels, None, 1, -100").empty());
  EXPECT_TRUE(losses(op, "%x, %labels").empty());
  EXPECT_TRUE(losses("Mul", "%x, %labels, None, 1, -100, 0.1").empty()) << "a node of another form of the loss";
}

TEST(FileDeclarations, WhatATrainingInfoUpdates) {
  Wire wire;
  wire.tail = field(20, field(4, pair("w", "w_new")) + field(4, pair("momentum", "m_new")));
  EXPECT_EQ(declared(wire).updated, std::vector<std::string>{"w"});
  wire.tail = field(20, field(4, pair("momentum", "m_new")));
  EXPECT_EQ(error_of([&] { declared(wire); }).code, Code::unsupported);
}

TEST(FileDeclarations, ExportKeepsTheMetadataAndLeavesTheTrainingOut) {
  const Scratch scratch;
  Wire wire;
  wire.graph_extra = note("w", kKind, "PARAMETER");
  wire.tail = field(14, pair("protrain.parameters", "w")) + field(20, field(4, pair("w", "w_new")));
  const auto model = open_bytes(scratch, wire.bytes());
  model->save(scratch / "saved.onnx", [](const std::string &, std::byte *) { return false; });
  const graph::FileDeclarations found = onnx_import::Model::open(scratch / "saved.onnx")->declared();
  EXPECT_EQ(found.list, std::vector<std::string>{"w"});
  EXPECT_EQ(found.kinds.at("w"), StoredKind::parameter);
  EXPECT_FALSE(found.updated);
}

// An empty value_info takes two bytes in the file, but about a hundred bytes in memory. So two million of them must be
// refused before they are parsed.
TEST(FileDeclarations, ManyNotesAreCountedBeforeTheyAreParsed) {
  std::string notes;
  for (int i = 0; i < 2'000'000; ++i) notes += field(13, "");
  Wire wire;
  wire.graph_extra = notes;
  EXPECT_EQ(error_of([&] { declared(wire); }).code, Code::limit);
}

}  // namespace protrain::test::declared_test
