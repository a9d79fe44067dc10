// Cases of ONNX's backend node tests: a small model, its inputs, and the outputs of ONNX's own reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/array.h"

namespace protrain::test {

struct Case {
  std::string name;                          // "test_softmax_axis_0"
  std::string op;                            // the model's operator; "domain::Op" outside the default domain
  std::size_t node_count = 0;                // more than 1: an operator expanded into others, or several operators
  std::int64_t opset = 0;                    // the opset of the default domain that the file gives
  std::string model;                         // an ONNX file
  std::vector<std::string> inputs, outputs;  // TensorProtos
  std::vector<std::string> names;            // the names of the model's inputs
  bool only_tensors = true;                  // no input or output is a sequence or an optional
};

// A field of a protobuf message. `value` is the number in a field of type varint, and `bytes` the contents of a
// length-delimited field. A field of fixed width has only `whole`.
struct Field {
  int number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
  std::string_view whole;  // the field with its tag
};
std::vector<Field> fields(std::string_view message);

// The same model under another opset of the default domain.
std::string with_opset(std::string_view model, std::int64_t opset);

// All cases of Debian's libonnx-testdata, by name; empty if the package is not installed.
std::vector<Case> installed_cases();
// The cases of a pack written by make_cases.py.
std::vector<Case> packed_cases(const std::string &path);

// The values of a case's tensors. Throws Code::type if the library does not know the element type.
std::vector<graph::Array> arrays_of(const std::vector<std::string> &tensors);

}  // namespace protrain::test
