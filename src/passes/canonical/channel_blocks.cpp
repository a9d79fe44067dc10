// Rules for the domain com.microsoft.nchwc: convolutions and pools that ONNX Runtime computes on blocks of channels.
// Import sets each node's attribute `block` to the number of channels in a block. Values between such nodes have whole
// blocks of channels, so the last channels may be padding. These rules keep ONNX's order of elements in values, and
// reorder only weights.
#include <numeric>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

std::int64_t block_of(const Node &node) {
  const std::int64_t block = node.attributes.integer("block", 0);
  require(block > 0, Code::graph, node.name, "{} without the size of a block", node.op);
  return block;
}

Attributes without_block(const Node &node) {
  Attributes kept;
  for (const auto &[key, value] : node.attributes.items())
    if (key != "block") kept.set(key, value);
  return kept;
}

Shape image_shape(const Canonical &c, const Node &node) {
  const Shape shape = c.shape(node.inputs.at(0));
  require(shape.size() == 4, Code::shape, node.name, "{} takes {}, not images", node.op, to_text(shape));
  return shape;
}

// Turns (n, h, w, c) or (n, c, h, w) into (n, c, h, w), and fills the last block of channels up with zeros.
bool reorder_input(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0);
  image_shape(c, node);
  if (node.attributes.integer("channels_last", 0) != 0) x = c.transpose(x, {0, 3, 1, 2});
  const std::int64_t channels = c.shape(x)[1], block = block_of(node);
  const std::int64_t more = divided_up(channels, block) * block - channels;
  if (more > 0) x = c.add("Pad", {x}, {{"pads", Integers{0, 0, 0, 0, 0, more, 0, 0}}, {"value", 0.0}});
  c.pass(node, x);
  return true;
}

// Keeps as many channels as the node's attribute `channels` says, because the others are padding. With the attribute
// `channels_last`, moves the axis of channels to the end.
bool reorder_output(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0);
  const std::int64_t found = image_shape(c, node)[1], channels = node.attributes.integer("channels", found);
  require(channels > 0 && channels <= found, Code::graph, node.name, "{} channels of {}", channels, found);
  if (channels < found)
    x = c.add("Slice", {x},
              {{"starts", Integers{0}}, {"ends", Integers{channels}}, {"axes", Integers{1}}, {"steps", Integers{1}}});
  if (node.attributes.integer("channels_last", 0) != 0) x = c.transpose(x, {0, 2, 3, 1});
  c.pass(node, x);
  return true;
}

// Returns a convolution's weights (m, c, h, w) with the elements in ONNX's order. If c is a multiple of `block`, the
// file has them in the order (m / block, c / block, h, w, block of c, block of m), else in the order (m / block, c, h,
// w, block of m).
ValueId plain_weights(Canonical &c, const Node &node) {
  const ValueId weights = node.inputs.at(1);
  const Shape shape = c.shape(weights);
  const std::int64_t block = block_of(node);
  require(shape.size() == 4 && shape[0] % block == 0, Code::shape, node.name, "weights of {} in blocks of {} channels",
          to_text(shape), block);
  const std::int64_t rows = shape[0] / block;
  if (shape[1] % block != 0) {
    const ValueId blocks = c.reshape(weights, {rows, shape[1], shape[2], shape[3], block});
    return c.reshape(c.transpose(blocks, {0, 4, 1, 2, 3}), shape);
  }
  const ValueId blocks = c.reshape(weights, {rows, shape[1] / block, shape[2], shape[3], block, block});
  return c.reshape(c.transpose(blocks, {0, 5, 1, 4, 2, 3}), shape);
}

bool blocked_conv(Canonical &c, Node &node) {
  std::vector<ValueId> inputs = node.inputs;
  inputs.at(1) = plain_weights(c, node);
  c.become(node, "com.microsoft::FusedConv", inputs, without_block(node));
  return true;
}

// Turns a pool on blocks of channels into ONNX's pool. The results are equal, because a pool works channel by channel.
bool blocked_pool(Canonical &c, Node &node) {
  c.become(node, node.op.substr(node.op.rfind(':') + 1), node.inputs, without_block(node));
  return true;
}

bool blocked_upsample(Canonical &c, Node &node) {
  const Integers scales = node.attributes.integers("scales");
  const Type type = {DType::f32, {static_cast<std::int64_t>(scales.size())}};
  const std::vector<double> values(scales.begin(), scales.end());
  Attributes attributes = {{"mode", node.attributes.text("mode", "nearest")}, {"nearest_mode", std::string("floor")}};
  attributes.set("coordinate_transformation_mode",
                 node.attributes.text("coordinate_transformation_mode", "asymmetric"));
  const ValueId factors = c.rewriter().constant(graph::Array::from_doubles(type, values));
  c.become(node, "Resize", {node.inputs.at(0), ValueId::none, factors}, attributes);
  return true;
}

}  // namespace

Rules channel_block_rules() {
  return {{"com.microsoft.nchwc::ReorderInput", reorder_input},
          {"com.microsoft.nchwc::ReorderOutput", reorder_output},
          {"com.microsoft.nchwc::Conv", blocked_conv},
          {"com.microsoft.nchwc::MaxPool", blocked_pool},
          {"com.microsoft.nchwc::AveragePool", blocked_pool},
          {"com.microsoft.nchwc::GlobalMaxPool", blocked_pool},
          {"com.microsoft.nchwc::GlobalAveragePool", blocked_pool},
          {"com.microsoft.nchwc::Upsample", blocked_upsample}};
}

}  // namespace protrain::passes
