// ONNX has fourteen kinds of attributes. This library reads seven of them.
#include "onnx_import/attributes.h"

#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/names.h"
#include "onnx_import/versions.h"
#include "ops/control_flow.h"

namespace protrain::onnx_import {

namespace {

// Kinds of attributes, numbered as in ONNX's AttributeProto.AttributeType.
enum Kind : std::int32_t { kFloat = 1, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings };

// Limit for a tensor in an attribute. Tensors of Constant nodes have no such limit: they are not read here.
constexpr std::uint64_t kMaxAttributeBytes = 1 << 10;

struct KindName {
  std::int32_t kind;
  std::string_view name;
};
constexpr auto kUnsupported = std::to_array<KindName>({{kGraph, "a subgraph"},
                                                       {9, "a list of tensors"},
                                                       {10, "a list of subgraphs"},
                                                       {11, "a sparse tensor"},
                                                       {12, "a list of sparse tensors"},
                                                       {13, "a type"},
                                                       {14, "a list of types"}});

// True if the attribute holds a value of another kind than its type says.
bool has_stray_value(const AttributeProto &attribute) {
  const std::array<std::pair<std::int32_t, bool>, 12> present{{{kFloat, attribute.has_f()},
                                                               {kInt, attribute.has_i()},
                                                               {kString, attribute.has_s()},
                                                               {kTensor, attribute.has_t()},
                                                               {kGraph, attribute.has_g()},
                                                               {kFloats, attribute.floats_size() > 0},
                                                               {kInts, attribute.ints_size() > 0},
                                                               {kStrings, attribute.strings_size() > 0},
                                                               {9, attribute.tensors_size() > 0},
                                                               {10, attribute.graphs_size() > 0},
                                                               {11, attribute.has_sparse_tensor()},
                                                               {12, attribute.sparse_tensors_size() > 0}}};
  for (const auto &[kind, here] : present)
    if (here && kind != attribute.type()) return true;
  return false;
}

// True for attributes that hold an element type. ONNX gives the number of the type, the graph holds the name.
bool is_dtype(const NodeProto &node, const AttributeProto &attribute) {
  return is_default_domain(node.domain()) && (one_of(attribute.name(), {"dtype", "output_dtype", "output_datatype"}) ||
                                              (attribute.name() == "to" && node.op_type() == "Cast"));
}

// True for bodies of control flow operators. They are skipped here, because Scope reads them (scope.h).
bool is_branch(const NodeProto &node, const AttributeProto &attribute) {
  return attribute.type() == kGraph && is_default_domain(node.domain()) && ops::is_control_flow(node.op_type());
}

// Returns a list of strings as one text, with commas between the items. In ONNX such lists hold only names, for example
// those of activations, so the items need no commas themselves.
std::string joined(const AttributeProto &attribute, const std::string &subject) {
  for (const std::string &item : attribute.strings()) {
    check_text(item, subject);
    require(item.find(',') == std::string::npos, Code::unsupported, subject,
            "the attribute is a list of strings, and \"{}\" has a comma; such lists are not supported",
            printable(item));
  }
  return fmt::format("{}", fmt::join(attribute.strings(), ","));
}

graph::Attribute read_value(const AttributeProto &attribute, const std::string &subject, const Storage &storage) {
  switch (attribute.type()) {
    case kFloat:
      return static_cast<double>(attribute.f());
    case kInt:
      return std::int64_t{attribute.i()};
    case kString:
      check_text(attribute.s(), subject);
      return attribute.s();
    case kTensor: {
      const Tensor tensor = parse_tensor(attribute.t(), subject);
      require(tensor.bytes <= kMaxAttributeBytes, Code::limit, subject, "a tensor of {} bytes; at most {} are allowed",
              tensor.bytes, kMaxAttributeBytes);
      return storage.load(tensor);
    }
    case kFloats:
      return std::vector<double>(attribute.floats().begin(), attribute.floats().end());
    case kInts:
      return std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end());
    case kStrings:
      return joined(attribute, subject);
    default:
      break;
  }
  for (const KindName &row : kUnsupported)
    require(row.kind != attribute.type(), Code::unsupported, subject,
            "the attribute is {}; attributes of that kind are not supported", row.name);
  fail(Code::graph, subject, "attribute type {}, which ONNX does not have", attribute.type());
}

}  // namespace

graph::Attributes read_attributes(const NodeProto &node, const std::string &subject, const Storage &storage) {
  graph::Attributes attributes;
  for (const AttributeProto &attribute : node.attribute()) {
    const std::string where = subject + "." + printable(attribute.name());
    check_name(attribute.name(), where, "attribute");
    require(!attributes.has(attribute.name()), Code::graph, where, "the attribute is given twice");
    require(!attribute.has_ref_attr_name(), Code::graph, where, "ref_attr_name outside of a function");
    require(!has_stray_value(attribute), Code::graph, where, "holds values of another kind than its type {}",
            attribute.type());
    if (is_branch(node, attribute)) continue;
    graph::Attribute value = read_value(attribute, where, storage);
    const bool unset = attribute.name() == "output_dtype" && attribute.type() == kInt && attribute.i() == 0;
    if (unset) continue;
    if (attribute.type() == kInt && is_dtype(node, attribute)) {
      require(attribute.i() > 0 && attribute.i() < 1000, Code::type, where, "element type {}", attribute.i());
      const auto onnx = static_cast<std::int32_t>(attribute.i());
      const bool quantises = attribute.name() == "output_dtype";
      value = std::string(name_of(quantises ? stored_dtype_of(onnx, where) : dtype_of(onnx, where)));
    }
    attributes.set(attribute.name(), std::move(value));
  }
  return attributes;
}

}  // namespace protrain::onnx_import
