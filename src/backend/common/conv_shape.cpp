#include "backend/common/conv_shape.h"

#include "base/error.h"

namespace protrain::backend {

namespace {
// Puts the last sizes of a list at the end of kConvAxes sizes; those before are 1.
ConvSizes last_sizes(const std::vector<std::int64_t> &list, std::size_t first, std::int64_t missing = 1) {
  ConvSizes sizes;
  sizes.fill(missing);
  for (std::size_t i = first; i < list.size(); ++i) sizes[sizes.size() - list.size() + i] = list[i];
  return sizes;
}
}  // namespace

ConvShape::ConvShape(const KernelRequest &request) {
  const std::string &op = request.node.op;
  result = op == "Conv" ? Result::y : op == "ConvTranspose" ? Result::x : Result::w;
  const graph::Type &first = request.inputs.at(0), &second = request.inputs.at(1), &made = request.outputs.at(0);
  const Shape &x = result == Result::x ? made.shape : first.shape;
  const Shape &w = result == Result::w ? made.shape : second.shape;
  const Shape &y = result == Result::y ? made.shape : result == Result::x ? first.shape : second.shape;
  const std::size_t rank = x.size();
  require(rank >= 3 && rank <= kConvAxes + 2, Code::unsupported, subject(request), "{} of {} has too many axes", op,
          to_text(x));
  const graph::Attributes &attributes = request.node.attributes;
  dtype = first.dtype;
  bias = result != Result::w && has_input(request, kConvBias);
  require(element_count(x) > 0 && element_count(w) > 0 && element_count(y) > 0, Code::unsupported, subject(request),
          "{} of {} and {}, which have no elements", op, to_text(first), to_text(second));
  samples = x[0];
  channels = x[1];
  maps = y[1];
  groups = attributes.integer("group", 1);
  input = last_sizes(x, 2);
  kernel = last_sizes(w, 2);
  output = last_sizes(y, 2);
  const auto listed = [&](const char *name, std::int64_t missing) {
    std::vector<std::int64_t> list = attributes.integers(name);
    list.resize(rank - 2, missing);  // pads at the end follow from the sizes
    return last_sizes(list, 0, missing);
  };
  strides = listed("strides", 1);
  dilations = listed("dilations", 1);
  before = listed("pads", 0);
}

}  // namespace protrain::backend
