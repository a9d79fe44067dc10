// Writes ONNX models byte by byte, legal or not.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "errors.h"
#include "onnx_import/model.h"
#include "scratch.h"

namespace protrain::test {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
inline std::string tag(int number, int wire) { return varint(static_cast<std::uint64_t>(number) << 3 | wire); }
inline std::string field(int number, const std::string &bytes) { return tag(number, 2) + varint(bytes.size()) + bytes; }
inline std::string field(int number, std::int64_t value) {
  return tag(number, 0) + varint(static_cast<std::uint64_t>(value));
}

template <typename T>
std::string raw(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)};
}

// ONNX's numbers for element types.
enum Element : std::int64_t {
  kFloat = 1,
  kUint8 = 2,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kHalf = 10,
  kDouble = 11,
  kBrain = 16,
  kFloat8 = 17,
  kUint4 = 21,
  kInt4 = 22
};

using Dims = std::vector<std::int64_t>;

// A TensorProto. `data` holds the fields with its values.
inline std::string tensor(const std::string &name, std::int64_t element, const Dims &dims, const std::string &data) {
  std::string out;
  for (const std::int64_t dim : dims) out += field(1, dim);
  return out + field(2, element) + field(8, name) + data;
}
inline std::string raw_data(const std::string &bytes) { return field(9, bytes); }
inline std::string floats(const std::string &name, const Dims &dims, const std::vector<float> &values) {
  return tensor(name, kFloat, dims, raw_data(raw(values)));
}

inline std::string pair(const std::string &key, const std::string &value) { return field(1, key) + field(2, value); }
inline std::string external(const std::string &location, const std::string &offset, const std::string &length) {
  return field(13, pair("location", location)) + field(13, pair("offset", offset)) + field(13, pair("length", length)) +
         field(14, 1);
}

// AttributeProtos.
inline std::string attribute(const std::string &name, std::int64_t type, const std::string &value) {
  return field(1, name) + value + field(20, type);
}
inline std::string int_attribute(const std::string &name, std::int64_t value) {
  return attribute(name, 2, field(3, value));
}
inline std::string tensor_attribute(const std::string &name, const std::string &value) {
  return attribute(name, 4, field(5, value));
}

using Names = std::vector<std::string>;

// A NodeProto, named after its first output.
inline std::string node(const std::string &op, const Names &inputs, const Names &outputs,
                        const Names &attributes = {}) {
  std::string out;
  for (const std::string &input : inputs) out += field(1, input);
  for (const std::string &output : outputs) out += field(2, output);
  if (!outputs.empty()) out += field(3, "make_" + outputs.front());
  out += field(4, op);
  for (const std::string &attribute : attributes) out += field(5, attribute);
  return out;
}

// An attribute that holds the body of a control flow node. The inputs and outputs of the body have no types.
inline std::string body_attribute(const std::string &name, const Names &inputs, const Names &nodes,
                                  const Names &outputs, const Names &initializers = {}) {
  std::string graph;
  for (const std::string &node : nodes) graph += field(1, node);
  for (const std::string &initializer : initializers) graph += field(5, initializer);
  for (const std::string &input : inputs) graph += field(11, field(1, input));
  for (const std::string &output : outputs) graph += field(12, field(1, output));
  return attribute(name, 5, field(6, graph));
}

// A ValueInfoProto. A dim is a number ("4"), a name ("batch"), or unknown ("").
inline std::string value(const std::string &name, std::int64_t element, const Names &dims) {
  std::string shape;
  for (const std::string &dim : dims)
    shape += field(1, dim.empty()                                  ? std::string()
                      : std::isdigit(dim[0]) != 0 || dim[0] == '-' ? field(1, std::int64_t{std::stoll(dim)})
                                                                   : field(2, dim));
  return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)));
}

// The parts of a model's file, for tests to change. The defaults are a legal model: y = x * w with x (2, 3) and w (3,
// 4).
struct Wire {
  std::string head = field(1, 8) + field(2, "test");
  std::string opset = field(8, field(2, 18));
  Names nodes{node("MatMul", {"x", "w"}, {"y"})};
  Names initializers{floats("w", {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})};
  Names inputs{value("x", kFloat, {"2", "3"})};
  Names outputs{value("y", kFloat, {"2", "4"})};
  std::string graph_extra;
  std::string tail;

  std::string graph() const {
    std::string out;
    for (const std::string &item : nodes) out += field(1, item);
    out += field(2, "g");
    for (const std::string &item : initializers) out += field(5, item);
    for (const std::string &item : inputs) out += field(11, item);
    for (const std::string &item : outputs) out += field(12, item);
    return out + graph_extra;
  }
  std::string bytes() const { return head + field(7, graph()) + opset + tail; }
};

inline std::unique_ptr<onnx_import::Model> open_bytes(const Scratch &scratch, const std::string &bytes) {
  return onnx_import::Model::open(scratch.put("model.onnx", bytes));
}

}  // namespace protrain::test
