// Malformed and malicious model files, each with its error.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "onnx_import/wire.h"

namespace protrain::test {

struct HostileFile {
  const char *name;
  std::function<std::string()> bytes;
  Code code;
  const char *text;               // part of the message
  const char *subject = nullptr;  // nullptr: the file
};
inline void PrintTo(const HostileFile &file, std::ostream *out) { *out << file.name; }

// The bytes of the legal model after `change`.
inline std::function<std::string()> changed(const std::function<void(Wire &)> &change) {
  return [=] {
    Wire wire;
    change(wire);
    return wire.bytes();
  };
}
// The bytes of the legal model with this tensor as its weight.
inline std::function<std::string()> weight(const std::string &proto) {
  return changed([=](Wire &wire) { wire.initializers = {proto}; });
}
// The bytes of the legal model with this node added.
inline std::function<std::string()> extra(const std::string &proto) {
  return changed([=](Wire &wire) { wire.nodes.push_back(proto); });
}
// Puts a large file together only when its test runs, because the list of cases is made whenever the program starts.
inline std::function<std::string()> large(std::function<std::string()> (*make)()) {
  return [=] { return make()(); };
}
inline std::string repeated(const std::string &text, std::size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}
inline std::string nested_subgraph(int depth) {
  std::string graph;
  for (int i = 0; i < depth; ++i)
    graph = field(1, node("If", {"c"}, {"o"}, {attribute("then_branch", 5, field(6, graph))}));
  return graph;
}

inline const std::string kGoodWeight = raw_data(std::string(48, '\0'));

inline std::function<std::string()> text(const std::string &bytes) {
  return [=] { return bytes; };
}

// Bytes that are no model.
inline std::vector<HostileFile> format_cases() {
  const auto random = [] {
    std::string out(1 << 20, '\0');
    std::uint32_t state = 12345;
    for (char &c : out) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    return out;
  };
  return {
      {"Empty", text(""), Code::format, "no graph"},
      {"NoGraph", text(field(1, 8) + field(8, field(2, 18))), Code::format, "no graph"},
      {"Random", random, Code::format, "not an ONNX model"},
      {"Json", text("{\"model\": 1}"), Code::format, "not an ONNX model"},
      {"Gzip", text("\x1f\x8b\x08gzip gzip gzip"), Code::format, "not an ONNX model"},
      {"Elf",
       text("\x7f"
            "ELF\x02\x01\x01 and so on"),
       Code::format, "not an ONNX model"},
      {"Gguf", text("GGUF\x03 and so on"), Code::format, "not an ONNX model"},
      {"Safetensors", text(std::string("\x58\1\0\0\0\0\0\0", 8) + "{\"w\":{\"dtype\":\"F32\"}}"), Code::format,
       "not an ONNX model"},
      {"TextFormat", text("ir_version: 8\ngraph {\n}\n"), Code::format, "not an ONNX model"},
      {"LongVarint", text(tag(1, 0) + std::string(11, '\x80') + "\1"), Code::format, "more than 10 bytes"},
      {"HugeLength", text(tag(7, 2) + varint(std::uint64_t{1} << 63)), Code::format, "not an ONNX model"},
      {"NegativeLength", text(tag(7, 2) + varint(static_cast<std::uint64_t>(-1))), Code::format, "not an ONNX model"},
      {"FieldZero", text(Wire().bytes() + std::string(2, '\0')), Code::format, "field 0"},
      {"WrongWireType", text(field(7, 1)), Code::format, "wire type 0 for graph"},
      {"GraphTwice", changed([](Wire &w) { w.tail = field(7, w.graph()); }), Code::format, "graph given twice"},
      {"NamelessFunction", changed([](Wire &w) { w.tail = field(25, field(10, "d")); }), Code::format,
       "required-field-empty: function"},
      {"ReservedField", weight(floats("w", {3, 4}, {}) + field(50001, 3)), Code::format, "field 50001"},
  };
}

// Models with too many parts of one kind, or with parts that the library does not support.
inline std::vector<HostileFile> limit_cases() {
  return {
      {"ManyNodes", changed([](Wire &w) { w.graph_extra = repeated(field(1, ""), 2'000'000); }), Code::limit,
       "object count"},
      {"ManyTensors", changed([](Wire &w) { w.graph_extra = repeated(field(5, ""), 2'000'000); }), Code::limit,
       "object count"},
      {"ManyAttributes", large([] { return extra(node("Neg", {"x"}, {"z"}) + repeated(field(5, ""), 2'000'000)); }),
       Code::limit, "object count"},
      {"ManyNames", large([] { return extra(node("Neg", {"x"}, {"z"}) + repeated(field(1, ""), 3'000'000)); }),
       Code::limit, "object count"},
      {"ManyIntegers", large([] {
         return extra(node("Neg", {"x"}, {"z"}, {attribute("a", 7, field(8, std::string(20 << 20, 'a')))}));
       }),
       Code::limit, "object count"},
      {"LongText", changed([](Wire &w) { w.tail = field(6, std::string(40 << 20, 'a')); }), Code::limit, "doc_string"},
      {"ManyEntries",
       large([] { return weight(tensor("w", kFloat, {1}, repeated(field(13, pair("k", "v")), 1'000'000))); }),
       Code::limit, "object count"},
      {"DeepGroups", changed([](Wire &w) { w.tail = repeated(tag(99, 3), 100'000); }), Code::limit, "nesting"},
      {"OpenGroup", changed([](Wire &w) { w.tail = tag(99, 3) + tag(98, 4); }), Code::format, "group"},
      {"DeepSubgraphs", extra(node("If", {"x"}, {"z"}, {attribute("then_branch", 5, field(6, nested_subgraph(32)))})),
       Code::limit, "subgraph depth 32"},
      {"VeryDeepSubgraphs", large([] {
         return extra(node("If", {"x"}, {"z"}, {attribute("then_branch", 5, field(6, nested_subgraph(2000)))}));
       }),
       Code::limit, "subgraph depth 32"},
      {"Subgraph", extra(node("Neg", {"x"}, {"z"}, {attribute("body", 5, field(6, nested_subgraph(31)))})),
       Code::unsupported, "subgraph", "make_z.body"},
      {"ManyFunctions", changed([](Wire &w) { w.tail = repeated(field(25, ""), 2'000'000); }), Code::limit,
       "object count"},
      {"ManyImports", changed([](Wire &w) { w.tail = repeated(field(8, ""), 2'000'000); }), Code::limit,
       "object count"},
      {"TrainingInfo", changed([](Wire &w) {
         w.tail = field(20, field(2, field(5, tensor("t", kFloat, {4}, external("../w", "0", "16")))));
       }),
       Code::unsupported, "training_info"},
  };
}

inline std::vector<HostileFile> version_cases() {
  const auto ir = [](std::int64_t version) { return changed([=](Wire &w) { w.head = field(1, version); }); };
  const auto opset = [](const std::string &imports) { return changed([=](Wire &w) { w.opset = imports; }); };
  return {
      {"IrAbsent", changed([](Wire &w) { w.head.clear(); }), Code::version, "ir_version"},
      {"IrZero", ir(0), Code::version, "ir_version 0"},
      {"IrNegative", ir(-1), Code::version, "ir_version -1"},
      {"IrHuge", ir(std::int64_t{1} << 62), Code::version, "ir_version"},
      {"IrTooOld", ir(2), Code::version, "ir_version 2"},
      {"IrTooNew", ir(15), Code::version, "ir_version 15"},
      {"OpsetAbsent", opset(""), Code::version, "opset-import"},
      {"OpsetOfOtherDomain", opset(field(8, field(1, "d") + field(2, 1))), Code::version, "opset-import"},
      {"OpsetZero", opset(field(8, field(2, 0))), Code::version, "opset-import"},
      {"OpsetTooOld", opset(field(8, field(2, 6))), Code::version, "7 to 28"},
      {"OpsetTooNew", opset(field(8, field(2, 9999))), Code::version, "9999"},
      {"OpsetTwice", opset(field(8, field(2, 18)) + field(8, field(1, "ai.onnx") + field(2, 17))), Code::format,
       "opset-import"},
      {"OperatorOfLaterOpset", extra(node("Gelu", {"x"}, {"z"})), Code::unsupported, "ai.onnx::Gelu", "make_z"},
      {"UnknownDomain", extra(node("Op", {"x"}, {"z"}) + field(7, "nobody")), Code::unsupported, "nobody::Op",
       "make_z"},
  };
}

inline std::vector<HostileFile> tensor_cases() {
  const std::int64_t big = std::int64_t{1} << 62;
  const auto dims = [](const Dims &dims) { return weight(tensor("w", kFloat, dims, kGoodWeight)); };
  const auto type = [](std::int64_t type) { return weight(tensor("w", type, {3, 4}, kGoodWeight)); };
  return {
      {"ProductOverflow", dims({std::int64_t{1} << 31, std::int64_t{1} << 31, 4}), Code::shape, "overflow", "w"},
      {"ByteOverflow", dims({big, 1}), Code::shape, "overflow", "w"},
      {"HugeDims", dims({big, 4}), Code::shape, "overflow", "w"},
      {"ManyTwos", dims(Dims(64, 2)), Code::shape, "overflow", "w"},
      {"NegativeDim", dims({4, -1}), Code::shape, "negative", "w"},
      {"LeastDim", dims({std::numeric_limits<std::int64_t>::min()}), Code::shape, "negative", "w"},
      {"Rank100", dims(Dims(100, 1)), Code::limit, "rank 100", "w"},
      {"RankMillion", large([] { return weight(tensor("w", kFloat, Dims(1'000'000, 1), kGoodWeight)); }), Code::limit,
       "rank 1000000", "w"},
      {"TooFewBytes", weight(tensor("w", kFloat, {1'000'000}, raw_data("1234"))), Code::shape,
       "expected 4000000 bytes, got 4", "w"},
      {"TooManyBytes",
       large([] { return weight(tensor("w", kFloat, {1'000'000}, raw_data(std::string(4'000'001, 'a')))); }),
       Code::shape, "expected 4000000 bytes, got 4000001", "w"},
      {"NoData", weight(tensor("w", kFloat, {std::int64_t{1} << 40}, "")), Code::shape, "got 0", "w"},
      {"ScalarOfTwo", weight(tensor("w", kFloat, {}, raw_data("12345678"))), Code::shape, "got 8", "w"},
      {"TwoFields", weight(tensor("w", kFloat, {3, 4}, kGoodWeight + field(4, std::string(48, 'a')))), Code::format,
       "raw_data and float_data both set", "w"},
      {"TwoPayloads",
       weight(tensor("w", kFloat, {500}, raw_data(std::string(2000, 'a')) + field(4, std::string(8, 'a')))),
       Code::format, "both set", "w"},
      {"WrongField", weight(tensor("w", kFloat, {2}, field(5, varint(1) + varint(2)))), Code::format,
       "int32_data cannot hold float32", "w"},
      {"StringsInFloats", weight(tensor("w", kFloat, {1}, field(6, "text"))), Code::format, "string_data", "w"},
      {"TypeZero", type(0), Code::type, "element type 0", "w"},
      {"TypeUnknown", type(99), Code::type, "element type 99", "w"},
      {"TypeNegative", type(-1), Code::type, "element type -1", "w"},
      {"TypeString", type(kString), Code::type, "string", "w"},
      {"TypeComplex", type(14), Code::type, "complex64", "w"},
      {"TypeFloat8", type(kFloat8), Code::type, "float8e4m3fn", "w"},
      {"FourBitsOfBytes", weight(tensor("w", kInt4, {3, 5}, raw_data(std::string(15, 'a')))), Code::shape, "got 15",
       "w"},
      {"HalfOutOfRange", weight(tensor("w", kBrain, {1}, field(5, varint(65536)))), Code::format, "65536", "w"},
      {"ByteOutOfRange", weight(tensor("w", kUint8, {1}, field(5, varint(256)))), Code::format, "256", "w"},
      {"Segment", weight(floats("w", {1}, {1}) + field(3, field(1, 1))), Code::format, "segment", "w"},
      {"NoName", weight(floats("", {1}, {1})), Code::format, "required-field-empty"},
      {"InitializerTwice", changed([](Wire &w) { w.initializers.push_back(floats("w", {1}, {1})); }), Code::format,
       "duplicate", "w"},
      {"SparseInitializer", changed([](Wire &w) { w.graph_extra = field(15, field(1, floats("s", {1}, {1}))); }),
       Code::type, "element type 0", "s"},
      {"BadName", weight(floats("w\x1b[31m\n", {1}, {1})), Code::format, "\\x1b"},
      {"NotUtf8Name", weight(floats("w\xff", {1}, {1})), Code::format, "\\xff"},
      {"NulInName", weight(floats(std::string("w\0x", 3), {1}, {1})), Code::format, "\\x00"},
      {"LongName", large([] { return weight(floats(std::string(1 << 20, 'w'), {1}, {1})); }), Code::format,
       "1048576 bytes"},
  };
}

inline std::vector<HostileFile> graph_cases() {
  const auto constant = [](const Names &attributes) { return extra(node("Constant", {}, {"c"}, attributes)); };
  const std::string one = int_attribute("value_int", 1);
  return {
      {"Cycle", changed([](Wire &w) {
         w.nodes = {node("Add", {"x", "b"}, {"a"}), node("Neg", {"a"}, {"b"}), node("MatMul", {"b", "w"}, {"y"})};
       }),
       Code::graph, "cycle", "make_a"},
      {"SelfLoop", extra(node("Add", {"x", "z"}, {"z"})), Code::graph, "cycle", "make_z"},
      {"UndefinedInput", extra(node("Neg", {"nowhere"}, {"z"})), Code::graph, "\"nowhere\"", "make_z"},
      {"OutputTwice", extra(node("Neg", {"x"}, {"y"})), Code::graph, "duplicate value", "make_y"},
      {"OutputIsInitializer", extra(node("Neg", {"x"}, {"w"})), Code::graph, "duplicate value", "make_w"},
      {"OutputIsInput", extra(node("Neg", {"x"}, {"x"})), Code::graph, "duplicate value", "make_x"},
      {"InputTwice", changed([](Wire &w) { w.inputs.push_back(w.inputs[0]); }), Code::graph, "duplicate value", "x"},
      {"OutputNeverMade", changed([](Wire &w) { w.outputs = {value("none", kFloat, {})}; }), Code::graph,
       "no node produces", "none"},
      {"NoOutputs", changed([](Wire &w) { w.outputs.clear(); }), Code::graph, "without outputs"},
      {"NodeWithoutOutputs", extra(node("Neg", {"x"}, {})), Code::graph, "without outputs", "Neg"},
      {"TooFewInputs", extra(node("Add", {"x"}, {"z"})), Code::graph, "2 inputs at least, not 1", "make_z"},
      {"OnlyAbsentInputs", extra(node("Add", {"x", ""}, {"z"})), Code::graph, "2 inputs at least, not 1", "make_z"},
      {"AbsentInput", extra(node("MatMul", {"", "w"}, {"z"})), Code::graph, "input 0 of MatMul", "make_z"},
      {"AbsentPart", extra(node("Concat", {"x", "", "x"}, {"z"}, {int_attribute("axis", 0)})), Code::graph,
       "input 1 of Concat", "make_z"},
      {"TooManyInputs", extra(node("Relu", {"x", "x", "x"}, {"z"})), Code::graph, "1 inputs at most, not 3", "make_z"},
      {"TooManyOutputs", extra(node("Relu", {"x"}, {"z", "more"})), Code::graph, "1 outputs at most, not 2", "make_z"},
      {"NodeWithoutOperator", extra(node("", {"x"}, {"z"})), Code::format, "required-field-empty", "make_z"},
      {"ConstantWithoutValue", constant({}), Code::graph, "0 values", "make_c"},
      {"ConstantWithTwo", constant({one, int_attribute("value_ints", 1)}), Code::graph, "2 values", "make_c"},
      {"ConstantText", constant({attribute("value_string", 3, field(4, "t"))}), Code::unsupported, "value_string",
       "make_c"},
      {"AttributeTwice", extra(node("Neg", {"x"}, {"z"}, {int_attribute("a", 1), int_attribute("a", 1)})), Code::graph,
       "twice", "make_z.a"},
      {"AttributeWithoutType", extra(node("Neg", {"x"}, {"z"}, {field(1, "a") + field(3, 1)})), Code::graph, "type 0",
       "make_z.a"},
      {"AttributeOfOtherType", extra(node("Neg", {"x"}, {"z"}, {attribute("a", 7, field(3, 1))})), Code::graph,
       "another kind", "make_z.a"},
      {"AttributeWithoutName", extra(node("Neg", {"x"}, {"z"}, {int_attribute("", 1)})), Code::format,
       "required-field-empty", "make_z."},
      {"AttributeReference", extra(node("Neg", {"x"}, {"z"}, {int_attribute("a", 1) + field(21, "outer")})),
       Code::graph, "ref_attr_name", "make_z.a"},
      {"SparseAttribute", extra(node("Neg", {"x"}, {"z"}, {attribute("a", 11, field(22, ""))})), Code::unsupported,
       "sparse", "make_z.a"},
      {"CastToString", extra(node("Cast", {"x"}, {"z"}, {int_attribute("to", 8)})), Code::type, "string", "make_z.to"},
      {"CastToNothing", extra(node("Cast", {"x"}, {"z"}, {int_attribute("to", std::int64_t{1} << 40)})), Code::type,
       "element type", "make_z.to"},
      {"SequenceInput", changed([](Wire &w) { w.inputs.push_back(field(1, "s") + field(2, field(4, ""))); }),
       Code::unsupported, "not a tensor", "s"},
      {"UnknownRank", changed([](Wire &w) { w.inputs.push_back(field(1, "s") + field(2, field(1, field(1, 1)))); }),
       Code::shape, "rank", "s"},
      {"NegativeInputDim", changed([](Wire &w) {
         w.inputs = {value("x", kFloat, {"-1", "3"})};
       }),
       Code::shape, "dim 0 is -1", "x"},
  };
}

inline std::vector<HostileFile> hostile_files() {
  std::vector<HostileFile> all;
  for (const auto &cases : {format_cases(), limit_cases(), version_cases(), tensor_cases(), graph_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

}  // namespace protrain::test
