#include "backend/common/conv_shape.h"

#include "base/error.h"

namespace protrain::backend {

namespace {
// Returns kConvAxes sizes. The elements of `list` from index `first` on come last, and `missing` fills the places
// before them.
ConvSizes last_sizes(const std::vector<std::int64_t> &list, std::size_t first, std::int64_t missing = 1) {
  ConvSizes sizes;
  sizes.fill(missing);
  for (std::size_t i = first; i < list.size(); ++i) sizes[sizes.size() - list.size() + i] = list[i];
  return sizes;
}

Shape spatial(const Shape &shape) { return {shape.begin() + 2, shape.end()}; }
}  // namespace

WindowSizes::WindowSizes(const KernelRequest &request, const Shape &x, const Shape &y, const Shape &window) {
  const std::size_t rank = x.size();
  require(rank >= 3 && rank <= kConvAxes + 2 && y.size() == rank && window.size() == rank - 2, Code::unsupported,
          subject(request), "{} of {} has too many axes", request.node.op, to_text(x));
  const auto listed = [&](const char *name, std::int64_t missing) {
    std::vector<std::int64_t> list = request.node.attributes.integers(name);
    list.resize(rank - 2, missing);  // drops the pads at the end, which follow from the sizes
    return last_sizes(list, 0, missing);
  };
  input = last_sizes(x, 2);
  kernel = last_sizes(window, 0);
  output = last_sizes(y, 2);
  strides = listed("strides", 1);
  dilations = listed("dilations", 1);
  before = listed("pads", 0);
}

std::int64_t ConvShape::samples_of_round(std::int64_t sample_bytes, std::int64_t round_bytes, std::int64_t most) const {
  const auto fits = [&](std::int64_t count) { return count <= most && count * sample_bytes <= round_bytes; };
  std::int64_t rounds = 1;
  while (rounds < samples && (samples % rounds != 0 || !fits(samples / rounds))) ++rounds;
  return samples / rounds;
}

ConvShape::Operands ConvShape::operands_of(const KernelRequest &request) {
  const std::string &op = request.node.op;
  const Shape &first = request.inputs.at(0).shape, &second = request.inputs.at(1).shape;
  const Shape &made = request.outputs.at(0).shape;
  if (op == "Conv") return {ConvOperand::y, first, second, made};
  if (op == "ConvTranspose") return {ConvOperand::x, made, second, first};
  return {ConvOperand::w, first, made, second};
}

ConvShape::ConvShape(const KernelRequest &request) : ConvShape(request, operands_of(request)) {}

ConvShape::ConvShape(const KernelRequest &request, const Operands &operands)
    : WindowSizes(request, operands.x, operands.y, spatial(operands.w)),
      result(operands.result),
      dtype(request.inputs[0].dtype),
      bias(result != ConvOperand::w && has_input(request, kConvBias)),
      samples(operands.x[0]),
      groups(request.node.attributes.integer("group", 1)),
      channels(operands.x[1]),
      maps(operands.y[1]) {
  const auto is_empty = [](const Shape &shape) { return element_count(shape) == 0; };
  require(!is_empty(operands.x) && !is_empty(operands.w) && !is_empty(operands.y), Code::unsupported, subject(request),
          "{} of {} and {}, which have no elements", request.node.op, to_text(request.inputs[0]),
          to_text(request.inputs[1]));
}

}  // namespace protrain::backend
