#include "backend/cpu/gemm.h"

#include <algorithm>

#include "backend/cpu/floats.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kRowGrain = 16;         // a multiple of the rows in a register tile
constexpr std::int64_t kPanelBytes = 1 << 20;  // bytes of a copied panel, which then stays in a core's cache
constexpr std::int64_t kSumBytes = 2 << 20;    // bytes of a panel's float32 sums, if c is narrower
constexpr std::int64_t kLeastPanelRows = 64;   // with fewer rows, reading b for each panel costs more time
constexpr std::int64_t kMostPanels = 1 << 22;  // most panels of a member, which keeps a list of them

// Returns the depth of a panel: the part of K that the panel covers. K is cut into several panels if it is large and b
// is not transposed. Without a transposition oneDNN 2.6 reads b in place, which is slow if K is large: as K grows from
// 1000 to 50000, oneDNN's speed falls from 0.95 of the processor's peak to 0.5 in float32, and to 0.7 in bfloat16. The
// result depends on the shape alone.
std::int64_t panel_depth(const GemmShape &s) {
  struct Depths {
    std::int64_t whole, panel;
  };
  const Depths depths = s.in == DType::f32 ? Depths{1024, 768} : Depths{8192, 1024};
  if (s.trans_b || s.in == DType::f16 || s.k <= depths.whole) return s.k;
  const std::int64_t parts = (s.k - 1) / depths.panel + 1;
  return static_cast<std::int64_t>(round_up(static_cast<std::uint64_t>((s.k - 1) / parts + 1), kRowGrain));
}
}  // namespace

Gemm::Gemm(const GemmShape &shape, int team_size)
    : shape_(shape), depth_(std::max<std::int64_t>(panel_depth(shape), 1)) {
  if (CellProduct::is_faster(shape)) {
    product_bytes_ = cells_.emplace(shape, team_size).scratch_bytes();
    return;
  }
  std::int64_t grain = shape.m >= kRowGrain * team_size ? kRowGrain : 1;
  if (shape.panel_rows > 0) grain = shape.panel_rows;
  const auto grow = [](std::uint64_t &bytes, std::int64_t elements, std::size_t size) {
    bytes = std::max(bytes, round_up(static_cast<std::uint64_t>(elements) * size, 64));
  };
  for (int i = 0; i < team_size; ++i) {
    const Range rows = share(shape.m, grain, i, team_size);
    if (rows.size() == 0) break;
    members_.push_back(cut(rows, grain));
    for (const Product &product : members_.back().products) {
      product_bytes_ = std::max(product_bytes_, product.scratch_bytes());
      if (lays_out()) grow(panel_bytes_, product.shape().m * product.shape().k, size_of(shape.in));
      if (sums_apart()) grow(sums_bytes_, product.shape().m * shape.n, sizeof(float));
    }
  }
}

Gemm::Part Gemm::cut(Range rows, std::int64_t grain) const {
  Part part;
  std::int64_t most_rows = shape_.m;
  const auto limit = [&](std::int64_t bytes, std::int64_t row, std::size_t element) {
    most_rows = std::min(most_rows, bytes / std::max<std::int64_t>(row * static_cast<std::int64_t>(element), 1));
  };
  if (lays_out()) limit(kPanelBytes, depth_, size_of(shape_.in));
  if (sums_apart()) limit(kSumBytes, shape_.n, sizeof(float));
  if (shape_.addend) limit(kPanelBytes, shape_.n, size_of(shape_.out));
  most_rows = shape_.panel_rows > 0 ? shape_.panel_rows : std::max(most_rows, kLeastPanelRows);
  const std::int64_t in_rows = (rows.size() - 1) / most_rows + 1, in_depth = shape_.k / depth_ + 1;
  require(in_rows <= kMostPanels / in_depth, Code::limit, "MatMul", "{} rows of depth {} are too many for a product",
          shape_.m, shape_.k);
  const int count = static_cast<int>(in_rows);
  for (int p = 0; p < count; ++p) {
    const Range own = share(rows.size(), grain, p, count);
    if (own.size() == 0) break;
    for (std::int64_t first_k = 0; first_k == 0 || first_k < shape_.k; first_k += depth_) {
      GemmShape of_panel = shape_;
      of_panel.m = own.size();
      of_panel.k = std::min(depth_, shape_.k - first_k);
      of_panel.trans_a = false;
      of_panel.accumulate |= shape_.addend || first_k > 0;
      of_panel.bias &= first_k == 0;
      of_panel.addend = false;
      if (sums_apart()) of_panel.out = DType::f32;
      const auto same = std::ranges::find(part.products, of_panel, &Product::shape);
      const auto product = static_cast<std::size_t>(same - part.products.begin());
      if (same == part.products.end()) part.products.emplace_back(of_panel, 1);
      part.panels.push_back({rows.begin + own.begin, first_k, product});
    }
  }
  return part;
}

void Gemm::run(const Member &member, const GemmOperands &operands, void *scratch) {
  if (cells_) return cells_->run(member, operands, scratch);
  const auto index = static_cast<std::size_t>(member.index);
  if (index >= members_.size()) return;
  const auto in = static_cast<std::int64_t>(size_of(shape_.in)), out = static_cast<std::int64_t>(size_of(shape_.out));
  auto *sums = reinterpret_cast<float *>(static_cast<std::byte *>(scratch) + panel_bytes_);
  void *product_scratch = static_cast<std::byte *>(scratch) + panel_bytes_ + sums_bytes_;
  Part &part = members_[index];
  for (const Panel &panel : part.panels) {
    Product &product = part.products[panel.product];
    const std::int64_t count = product.shape().m * shape_.n;
    const std::int64_t offset = panel.first_row * shape_.n * out;
    std::byte *c = static_cast<std::byte *>(operands.c) + offset;
    if (product.shape().accumulate && panel.first_k == 0) {
      const std::byte *added = shape_.addend ? static_cast<const std::byte *>(operands.addend) + offset : c;
      if (sums_apart())
        with_float(shape_.out, [&]<typename T>(T) { widen(reinterpret_cast<const T *>(added), sums, count); });
      else if (added != c)
        std::copy_n(added, count * out, c);
    }
    GemmOperands of_panel = operands;
    if (lays_out()) {
      const Range rows{panel.first_row, panel.first_row + product.shape().m};
      copy_rows_of_a(shape_, rows, {panel.first_k, panel.first_k + product.shape().k}, operands.a, scratch);
      of_panel.a = scratch;
    } else {
      of_panel.a = static_cast<const std::byte *>(operands.a) + panel.first_row * shape_.k * in;
    }
    of_panel.b = static_cast<const std::byte *>(operands.b) + panel.first_k * shape_.n * in;
    of_panel.c = sums_apart() ? static_cast<void *>(sums) : c;
    product.run(0, of_panel, product_scratch);
    if (sums_apart() && panel.first_k + product.shape().k == shape_.k)
      with_float(shape_.out, [&]<typename T>(T) { narrow(sums, reinterpret_cast<T *>(c), count); });
  }
}

}  // namespace protrain::backend::cpu
