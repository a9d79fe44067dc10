// The geometry of convolution and pooling, and the operator Col2Im, which passes/canonical/windows.cpp rewrites.
#include "ops/windows.h"

#include <algorithm>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMostIndices = std::int64_t{1} << 27;
constexpr std::int64_t kLongest = std::int64_t{1}
                                  << 30;  // limit of an axis, a stride, a pad, so that no product overflows 64 bits

Integers list_of(const Node &node, const char *name, std::size_t count, std::int64_t fallback, std::int64_t least) {
  Integers list = node.attributes.integers(name);
  if (!node.attributes.has(name)) list.assign(count, fallback);
  const auto fits = [&](std::int64_t n) { return n >= least && n <= kLongest; };
  require(list.size() == count && std::ranges::all_of(list, fits), Code::graph, node.subject(),
          "{} {} of {} do not fit {} spatial axes", name, to_text(list), node.op, count);
  return list;
}

Shape spatial(const Node &node, const Shape &x, const Shape &kernel) {
  require(x.size() >= 3 && kernel.size() == x.size() - 2 &&
              std::ranges::all_of(kernel, [](std::int64_t k) { return k > 0 && k <= kLongest; }) &&
              std::ranges::all_of(x.begin() + 2, x.end(), [](std::int64_t n) { return n <= kLongest; }),
          Code::shape, node.subject(), "{} with windows of {} does not take {}", node.op, to_text(kernel), to_text(x));
  return {x.begin() + 2, x.end()};
}

SlidingWindows common_parts(const Node &node, Shape kernel) {
  SlidingWindows w;
  const std::size_t axes = kernel.size();
  w.strides = list_of(node, "strides", axes, 1, 1);
  w.dilations = list_of(node, "dilations", axes, 1, 1);
  const Integers pads = list_of(node, "pads", 2 * axes, 0, 0);
  w.before.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  w.after.assign(pads.begin() + static_cast<std::ptrdiff_t>(axes), pads.end());
  w.kernel = std::move(kernel);
  return w;
}

std::string auto_pad_of(const Node &node) {
  const std::string name = node.attributes.text("auto_pad", "NOTSET");
  require(name == "NOTSET" || name == "VALID" || name == "SAME_UPPER" || name == "SAME_LOWER", Code::graph,
          node.subject(), "auto_pad \"{}\" of {} is none of ONNX's", name, node.op);
  return name;
}

// Divides the pads that auto_pad asks for: half in front and half behind. If `total` is odd, `more_behind` says where
// the larger half goes.
void pad_evenly(SlidingWindows &w, std::size_t axis, std::int64_t total, bool more_behind) {
  w.before[axis] = more_behind ? total / 2 : total - total / 2;
  w.after[axis] = total - w.before[axis];
}

}  // namespace

std::int64_t SlidingWindows::padded(std::size_t axis) const {
  return std::max(before[axis] + input[axis] + std::max<std::int64_t>(after[axis], 0), reach(axis));
}

SlidingWindows windows_of(const Node &node, const Shape &x, Shape kernel) {
  const Shape input = spatial(node, x, kernel);
  SlidingWindows w = common_parts(node, std::move(kernel));
  w.input = input;
  const std::string automatic = auto_pad_of(node);
  const bool rounds_up = node.attributes.integer("ceil_mode", 0) != 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (automatic == "VALID") w.before[i] = w.after[i] = 0;
    if (automatic.starts_with("SAME")) {
      const std::int64_t count = (input[i] + w.strides[i] - 1) / w.strides[i];
      const std::int64_t total = std::max<std::int64_t>(0, (count - 1) * w.strides[i] + w.extent(i) - input[i]);
      pad_evenly(w, i, total, automatic == "SAME_UPPER");
    }
    const std::int64_t room = input[i] + w.before[i] + w.after[i] - w.extent(i);
    require(room >= 0, Code::shape, node.subject(), "a window of {} does not fit axis {} of {}", w.extent(i), i + 2,
            to_text(x));
    std::int64_t count = room / w.strides[i] + 1;
    if (rounds_up && room % w.strides[i] != 0 && count * w.strides[i] < input[i] + w.before[i]) ++count;
    w.output.push_back(count);
  }
  return w;
}

SlidingWindows transposed_windows_of(const Node &node, const Shape &x, Shape kernel) {
  const Shape count = spatial(node, x, kernel);
  SlidingWindows w = common_parts(node, std::move(kernel));
  w.output = count;
  const Integers extra = list_of(node, "output_padding", count.size(), 0, 0);
  const Integers given = node.attributes.integers("output_shape");  // dims of the spatial axes, or of all axes
  require(given.empty() || given.size() == count.size() || given.size() == x.size(), Code::graph, node.subject(),
          "output_shape {} does not fit {}", to_text(given), to_text(x));
  const std::string automatic = auto_pad_of(node);
  for (std::size_t i = 0; i < count.size(); ++i) {
    const std::int64_t reach = (count[i] - 1) * w.strides[i] + w.extent(i) + extra[i];
    if (automatic == "VALID") w.before[i] = w.after[i] = 0;
    if (!given.empty() || automatic.starts_with("SAME")) {
      const std::int64_t wanted = given.empty() ? count[i] * w.strides[i] : given.at(given.size() - count.size() + i);
      require(wanted > 0 && wanted <= kLongest, Code::shape, node.subject(), "an axis of {} cannot be made", wanted);
      pad_evenly(w, i, std::max<std::int64_t>(0, reach - wanted), automatic == "SAME_UPPER");
      w.after[i] = reach - wanted - w.before[i];  // negative: trailing elements that no window reaches
    }
    w.input.push_back(reach - w.before[i] - w.after[i]);
    require(w.input[i] >= 0, Code::shape, node.subject(), "pads cut off all of axis {}", i + 2);
  }
  return w;
}

Attributes conv_attributes(const SlidingWindows &windows, std::int64_t groups) {
  Integers pads = windows.before;
  for (std::size_t i = 0; i < windows.kernel.size(); ++i)
    pads.push_back(std::max<std::int64_t>(0, windows.reach(i) - windows.before[i] - windows.input[i]));
  return {{"strides", windows.strides}, {"dilations", windows.dilations}, {"pads", pads}, {"group", groups}};
}

Attributes transposed_attributes(const SlidingWindows &windows, std::int64_t groups) {
  Attributes attributes = conv_attributes(windows, groups);
  Integers beyond;
  for (std::size_t i = 0; i < windows.kernel.size(); ++i)
    beyond.push_back(std::max<std::int64_t>(0, windows.before[i] + windows.input[i] - windows.reach(i)));
  attributes.set("output_padding", beyond);
  return attributes;
}

std::vector<std::int64_t> window_indices(const SlidingWindows &windows) {
  Shape padded;
  for (std::size_t i = 0; i < windows.kernel.size(); ++i) padded.push_back(windows.padded(i));
  const Integers along = row_major_strides(padded);
  const std::int64_t total =
      static_cast<std::int64_t>(checked_multiply(static_cast<std::uint64_t>(element_count(windows.kernel)),
                                                 static_cast<std::uint64_t>(element_count(windows.output))));
  require(total <= kMostIndices, Code::limit, "", "{} elements in all windows are too many", total);
  Integers indices;
  indices.reserve(static_cast<std::size_t>(total));
  for_each_position(windows.kernel, [&](const Integers &element) {
    for_each_position(windows.output, [&](const Integers &window) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < along.size(); ++i)
        at += (window[i] * windows.strides[i] + element[i] * windows.dilations[i]) * along[i];
      indices.push_back(at);
    });
  });
  return indices;
}

Family windows_family() {
  return {{.name = "Col2Im",
           .infer = infer_rewritten,
           .absorbed = {{1, "image_shape"}, {2, "block_shape"}},
           .file_only = true}};
}

}  // namespace protrain::ops
