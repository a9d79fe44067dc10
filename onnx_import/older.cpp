// The table of older forms of operators, taken from ONNX's own list of operators and their versions.
#include "onnx_import/older.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace protrain::onnx_import {

namespace {

using graph::Array;
using graph::Graph;
using graph::Node;
using graph::ValueId;

// Marks a node whose operator flattens its operand to a matrix and works on the rows. All axes from `axis` on become
// the columns.
void flatten(Graph &, Node &node) {
  node.attributes.set("axis", node.attributes.integer("axis", 1));
  node.attributes.set("flattens", std::int64_t{1});
}

// Converts the first forms of Resize, which have the inputs x[, scales]. A new element with index i reads x at i
// divided by the scale. Mode nearest rounds this quotient down on an axis that grows, and up on an axis that shrinks,
// as ONNX's test cases and ONNX Runtime do.
void resize_from_corner(Graph &, Node &node) {
  const std::string mode = node.attributes.text("mode", "nearest");
  node.op = "Resize";
  node.attributes = {{"mode", mode == "bilinear" ? std::string("linear") : mode},
                     {"coordinate_transformation_mode", std::string("asymmetric")},
                     {"nearest_mode", std::string("opset10")}};
  node.inputs.insert(node.inputs.begin() + 1, ValueId::none);
}

void resize_by_attribute(Graph &graph, Node &node) {
  const std::vector<double> scales = node.attributes.reals("scales");
  const graph::Type type = {DType::f32, {static_cast<std::int64_t>(scales.size())}};
  const std::string name = graph.value(node.outputs.at(0)).name + "/scales";
  node.inputs.push_back(graph.add_constant(name, Array::from_doubles(type, scales)));
  resize_from_corner(graph, node);
}

// Throws Code::unsupported if `spatial` is 0, which asks for a mean and a variance of each element instead of each
// channel.
void require_channels(Graph &, Node &node) {
  require(node.attributes.integer("spatial", 1) != 0, Code::unsupported, "",
          "spatial is 0, statistics for each element; only statistics for each channel are supported");
}

// Converts RoiAlign of opset 15 and older, which uses the regions exactly where the file places them. From opset 16 on,
// RoiAlign by default moves the regions by half an element. With "output_half_pixel" it does not move them.
void keep_regions(Graph &, Node &node) {
  node.attributes.set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

void transform_first_axis(Graph &, Node &node) { node.attributes.set("axis", node.attributes.integer("axis", 1)); }

// Converts ConstantFill. ONNX never released this operator, but PyTorch's exporter writes it for states and zeros in
// opsets 7 and 8.
void fill_shape(Graph &, Node &node) {
  require(node.attributes.integer("input_as_shape", 0) != 0, Code::unsupported, "",
          "{} is supported only with input_as_shape = 1", node.op);
  const DType dtype = dtype_named(node.attributes.text("dtype", "float32"));
  require(is_float(dtype), Code::unsupported, "", "{} of {} is not supported", node.op, name_of(dtype));
  node.op = "ConstantOfShape";
  node.attributes = {{"value", Array::scalar(dtype, node.attributes.real("value", 0))}};
}

void rename_scatter(Graph &, Node &node) { node.op = "ScatterElements"; }

constexpr auto kOlderForms = std::to_array<OlderForm>({
    {"BatchNormalization", 8, 5, 5, "", require_channels},
    {"ConstantFill", 8, 1, 1, "", fill_shape},
    {"DFT", 19, 1, 2, "", transform_first_axis},
    {"Hardmax", 12, 1, 1, "", flatten},
    {"LogSoftmax", 12, 1, 1, "", flatten},
    {"Pad", 10, 1, 1, "pads", nullptr},
    {"Resize", 10, 2, 2, "", resize_from_corner},
    {"RoiAlign", 15, 3, 3, "", keep_regions},
    {"Scatter", 10, 3, 3, "", rename_scatter},
    {"Slice", 9, 1, 1, "starts ends", nullptr},
    {"Softmax", 12, 1, 1, "", flatten},
    {"TopK", 9, 1, 1, "k", nullptr},
    {"Unsqueeze", 12, 1, 1, "axes", nullptr},
    {"Upsample", 8, 1, 1, "scales", resize_by_attribute},
    {"Upsample", 9, 2, 2, "", resize_from_corner},
});

}  // namespace

const OlderForm *older_form(std::string_view op, std::int64_t opset) {
  const auto fits = [&](const OlderForm &form) { return form.op == op && opset <= form.until; };
  const auto found = std::ranges::find_if(kOlderForms, fits);
  return found == kOlderForms.end() ? nullptr : &*found;
}

void convert_older(const OlderForm &form, Graph &graph, Node &node, const std::string &subject) {
  for (std::string_view rest = form.needs; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(' '));
    require(node.attributes.has(name), Code::graph, subject, "{} lacks its attribute {}", form.op, name);
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  try {
    if (form.convert != nullptr) form.convert(graph, node);
  } catch (Error &error) {
    if (error.subject.empty()) error.subject = subject;
    throw;
  }
}

}  // namespace protrain::onnx_import
