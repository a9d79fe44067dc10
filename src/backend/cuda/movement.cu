// Operators that only move elements, of any type: strided copies, and Trilu. A copy whose input and output are
// contiguous along different dims is transposed tile by tile.
#include <algorithm>
#include <cstring>

#include "backend/common/moves.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
struct alignas(16) WidestUnit {  // as many bytes as one instruction can move
  std::uint64_t at[2];
};
constexpr std::int64_t kWidest = sizeof(WidestUnit);

template <typename Unit>
__global__ void move_kernel(Walk<2> walk, const void *from, void *to, std::int64_t count) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    const Offsets<2> at = offsets_of(walk, i);
    static_cast<Unit *>(to)[at.at[1]] = static_cast<const Unit *>(from)[at.at[0]];
  }
}
using MoveKernel = void (*)(Walk<2> walk, const void *from, void *to, std::int64_t count);
MoveKernel move_by(std::int64_t bytes) {
  switch (bytes) {
    case 1:
      return move_kernel<std::uint8_t>;
    case 2:
      return move_kernel<std::uint16_t>;
    case 4:
      return move_kernel<std::uint32_t>;
    case 8:
      return move_kernel<std::uint64_t>;
    default:
      return move_kernel<WidestUnit>;
  }
}

// A copy that moves units of several neighbouring elements. Units are as wide as dims, strides and offsets allow, up to
// kWidest bytes. Strides count units.
struct Units {
  std::int64_t bytes;  // of one unit
  Layout<2> layout;
};
Units in_units(const Move &move, std::int64_t element_bytes, const std::string &subject) {
  const bool in_line = move.layout.inner_stride(0) == 1 && move.layout.inner_stride(1) == 1;
  std::int64_t unit = in_line ? neighbours(move.layout, kWidest / element_bytes) : 1;
  while (move.from_offset % unit != 0 || move.to_offset % unit != 0) unit /= 2;
  Layout<2> layout = in_packs(move.layout, unit);
  for (Strides &strides : layout.strides)
    for (std::int64_t &stride : strides) stride /= unit;
  return {unit * element_bytes, merged(layout, subject)};
}

template <typename T>
__global__ void fill_kernel(T *to, T fill, std::int64_t count) {
  for_packs<kWidest / sizeof(T)>(count, [&](std::int64_t first, auto width) {
    Pack<T, decltype(width)::value> pack;
    for (T &element : pack.at) element = fill;
    store<decltype(width)::value>(to + first, pack);
  });
}

// Transposes of (rows, columns) matrices, one for each step of the outer walk: to[column * to_ld + row] = from[row *
// from_ld + column]. Tiles are transposed in shared memory, so that neighbouring threads both read and write
// neighbouring elements.
struct TiledTranspose {
  Walk<2> outer;
  std::int64_t rows, columns, from_ld, to_ld, row_tiles, column_tiles;
};
constexpr int kTile = 32, kTileRows = kBlock / kTile;

template <typename T>
__global__ void transpose_kernel(TiledTranspose transpose, const T *from, T *to) {
  __shared__ T tile[kTile][kTile + 1];  // one more column, so that a column's elements lie in different banks
  std::int64_t column_tile = 0, row_tile = 0;
  std::int64_t rest = divide(blockIdx.x, transpose.column_tiles, column_tile);
  rest = divide(rest, transpose.row_tiles, row_tile);
  const Offsets<2> base = offsets_of(transpose.outer, rest);
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t row = row_tile * kTile, column = column_tile * kTile;
  for (int j = y; j < kTile; j += kTileRows)
    if (row + j < transpose.rows && column + x < transpose.columns)
      tile[j][x] = from[base.at[0] + (row + j) * transpose.from_ld + column + x];
  __syncthreads();
  for (int j = y; j < kTile; j += kTileRows)
    if (column + j < transpose.columns && row + x < transpose.rows)
      to[base.at[1] + (column + j) * transpose.to_ld + row + x] = tile[x][j];
}

// Splits the copy that `layout` describes into transposes of matrices. The copy is contiguous along the innermost dim
// in the output, and along column_axis in the input.
TiledTranspose transpose_of(const Layout<2> &layout, std::size_t column_axis) {
  const std::size_t last = layout.dims.size() - 1;
  Layout<2> outer;
  for (std::size_t axis = 0; axis < last; ++axis) {
    if (axis == column_axis) continue;
    outer.dims.push_back(layout.dims[axis]);
    for (std::size_t n : {0, 1}) outer.strides[n].push_back(layout.strides[n][axis]);
  }
  if (outer.dims.empty()) outer = {{1}, {Strides{0}, Strides{0}}};
  return {walk_of(outer),
          layout.dims[last],
          layout.dims[column_axis],
          layout.strides[0][last],
          layout.strides[1][column_axis],
          divided_up(layout.dims[last], kTile),
          divided_up(layout.dims[column_axis], kTile)};
}

template <typename T>
class MovesKernel : public CudaKernel {
 public:
  explicit MovesKernel(const KernelRequest &request) {
    const Moves moves = moves_of(request);
    if (moves.fill) {
      fills_ = element_count(request.outputs[0].shape);
      std::memcpy(&fill_, moves.fill->data(), sizeof fill_);
    }
    for (const Move &move : moves.list) steps_.push_back(step_of(move, subject(request)));
  }

  void run(Stream stream, const Launch &launch) override {
    if (fills_ > 0)
      cuda::launch(stream, fill_kernel<T>, pack_grid(fills_, kWidest / sizeof(T)), output<T>(launch, 0), fill_, fills_);
    for (const Step &step : steps_) {
      const std::byte *from = input<std::byte>(launch, step.from) + step.from_offset;
      std::byte *to = output<std::byte>(launch, step.to) + step.to_offset;
      if (step.tiles > 0)
        cuda::launch(stream, transpose_kernel<T>, {step.tiles}, step.transpose, reinterpret_cast<const T *>(from),
                     reinterpret_cast<T *>(to));
      else
        cuda::launch(stream, step.kernel, grid_of(step.count), step.walk, from, to, step.count);
    }
  }

 private:
  struct Step {
    std::size_t from, to;                 // indices of the input and of the output
    std::int64_t from_offset, to_offset;  // bytes
    MoveKernel kernel = nullptr;
    std::int64_t count = 0;  // units
    Walk<2> walk{};
    std::int64_t tiles = 0;  // 0: copied unit by unit
    TiledTranspose transpose{};
  };

  static Step step_of(const Move &move, const std::string &subject) {
    const Layout<2> &layout = move.layout;
    Step step{.from = move.from,
              .to = move.to,
              .from_offset = move.from_offset * static_cast<std::int64_t>(sizeof(T)),
              .to_offset = move.to_offset * static_cast<std::int64_t>(sizeof(T))};
    const auto column = std::find(layout.strides[0].begin(), layout.strides[0].end(), 1);
    const bool transposes = layout.inner_stride(0) != 1 && layout.inner_stride(1) == 1;
    if (layout.count() > 0 && transposes && column != layout.strides[0].end()) {
      step.transpose = transpose_of(layout, static_cast<std::size_t>(column - layout.strides[0].begin()));
      step.tiles = layout.count() / (step.transpose.rows * step.transpose.columns) * step.transpose.row_tiles *
                   step.transpose.column_tiles;
      return step;
    }
    const Units units = in_units(move, sizeof(T), subject);
    step.kernel = move_by(units.bytes);
    step.count = units.layout.count();
    step.walk = walk_of(units.layout);
    return step;
  }

  std::vector<Step> steps_;
  std::int64_t fills_ = 0;
  T fill_ = 0;
};

// Trilu keeps the upper (column >= row + k) or the lower (column <= row + k) part of the last two dims. All other
// elements become 0.
template <typename T>
class Trilu : public CudaKernel {
 public:
  explicit Trilu(const KernelRequest &request)
      : upper_(request.node.attributes.integer("upper", 1) != 0),
        k_(request.node.attributes.integer("k", 0)),
        count_(element_count(request.outputs[0].shape)) {
    const Shape &shape = request.outputs[0].shape;
    require(shape.size() >= 2, Code::shape, subject(request), "{} has no last two dims", to_text(shape));
    rows_ = shape[shape.size() - 2];
    columns_ = shape.back();
    k_ = std::clamp(k_, -rows_, columns_);  // a k beyond these bounds changes nothing more
  }

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    each(stream, count_, [x, y, rows = rows_, columns = columns_, k = k_, upper = upper_] __device__(std::int64_t i) {
      std::int64_t column = 0, row = 0;
      divide(divide(i, columns, column), rows, row);
      y[i] = (upper ? column >= row + k : column <= row + k) ? x[i] : T{0};
    });
  }

 private:
  const bool upper_;
  std::int64_t k_;
  const std::int64_t count_;
  std::int64_t rows_, columns_;
};
}  // namespace

KernelPtr make_moves(const KernelRequest &request, DeviceState &) {
  return by_size(request, request.inputs.at(0).dtype,
                 [&]<typename T>(T) -> KernelPtr { return std::make_unique<MovesKernel<T>>(request); });
}

KernelPtr make_transpose(const KernelRequest &request, DeviceState &device) { return make_moves(request, device); }

KernelPtr make_trilu(const KernelRequest &request, DeviceState &) {
  return by_size(request, request.outputs[0].dtype,
                 [&]<typename T>(T) -> KernelPtr { return std::make_unique<Trilu<T>>(request); });
}

}  // namespace protrain::backend::cuda
