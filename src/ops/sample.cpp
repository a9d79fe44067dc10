// Result types of operators that interpolate between the elements of x (N, C, d...). passes/canonical/sample.cpp
// rewrites them.
#include <algorithm>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

// x (N, C, d...), grid (N, o..., number of spatial axes) -> (N, C, o...)
std::vector<Type> infer_grid_sample(const NodeTypes &types) {
  const Type x = float_input(types, 0), grid = float_input(types, 1);
  const std::size_t rank = x.shape.size();
  const bool fits = rank >= 3 && rank <= 5 && grid.dtype == x.dtype && grid.shape.size() == rank &&
                    grid.shape[0] == x.shape[0] && grid.shape.back() == static_cast<std::int64_t>(rank) - 2;
  require(fits, Code::shape, types.subject(), "a grid {} does not address {}", to_text(grid), to_text(x));
  Shape shape = {x.shape[0], x.shape[1]};
  shape.insert(shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
  return {{x.dtype, shape}};
}

// theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2); with one more axis, (N, 3, 4) -> (N, D, H, W, 3)
std::vector<Type> infer_affine_grid(const NodeTypes &types) {
  const Type theta = float_input(types, 0);
  const std::vector<std::int64_t> size = types.node.attributes.integers("size");
  require(types.node.attributes.has("size"), Code::unsupported, types.subject(), "the size depends on data");
  const auto axes = static_cast<std::int64_t>(size.size()) - 2;
  const bool fits = (axes == 2 || axes == 3) && theta.shape == Shape{size[0], axes, axes + 1} &&
                    std::ranges::all_of(size, [](std::int64_t dim) { return dim > 0; });
  require(fits, Code::shape, types.subject(), "matrices {} for grids of {}", to_text(theta), to_text(size));
  Shape shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(axes);
  return {{theta.dtype, shape}};
}

// x (N, C, H, W), regions (R, 4), batch_indices (R) -> (R, C, output_height, output_width)
std::vector<Type> infer_roi_align(const NodeTypes &types) {
  const Type x = float_input(types, 0), regions = float_input(types, 1), &samples = types.input(2);
  const std::int64_t height = types.node.attributes.integer("output_height", 1),
                     width = types.node.attributes.integer("output_width", 1);
  const bool fits = x.shape.size() == 4 && regions.dtype == x.dtype && regions.shape.size() == 2 &&
                    regions.shape[1] == 4 && is_integer(samples.dtype) && samples.shape == Shape{regions.shape[0]};
  require(fits, Code::shape, types.subject(), "regions {} of samples {} do not fit {}", to_text(regions),
          to_text(samples), to_text(x));
  constexpr std::int64_t kMost = 1 << 14;
  require(height > 0 && height <= kMost && width > 0 && width <= kMost, Code::graph, types.subject(),
          "regions of {} by {} elements", height, width);
  return {{x.dtype, {regions.shape[0], x.shape[1], height, width}}};
}

}  // namespace

Family sample_family() {
  return {{.name = "AffineGrid", .infer = infer_affine_grid, .absorbed = {{1, "size"}}, .file_only = true},
          {.name = "GridSample", .infer = infer_grid_sample, .file_only = true},
          {.name = "RoiAlign", .infer = infer_roi_align, .file_only = true}};
}

}  // namespace protrain::ops
