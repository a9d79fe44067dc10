#include "backend/cpu/stored_gemm.h"

#include <algorithm>

#include "backend/cpu/transpose.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kGrain = 16;            // rows and columns are cut at multiples of this
constexpr std::int64_t kPanelBytes = 1 << 20;  // most bytes of a panel of widened weights, unless it is one grain
constexpr std::int64_t kBlockRows = 512;       // most rows of a at once

// Returns into how many pieces `count` columns or rows are cut. The pieces are panels of columns, or blocks of rows. A
// piece should have at most `most` columns or rows; if `most` is less than kGrain, it counts as kGrain. Pieces are cut
// at multiples of kGrain, so a piece can be slightly larger than that.
int pieces_of(std::int64_t count, std::int64_t most) {
  return static_cast<int>(divided_up(count, std::max(most, kGrain)));
}
}  // namespace

StoredGemm::StoredGemm(const GemmShape &shape, const StoredRows &weights, int team_size)
    : shape_(shape), weights_(weights) {
  require(!shape.trans_a && !shape.accumulate, Code::internal, "gemm", "stored weights are the second of two factors");
  if (CellProduct::is_faster(shape)) {
    product_bytes_ = cells_.emplace(shape, team_size).scratch_bytes();
    return;
  }
  const auto grow = [](std::uint64_t &bytes, std::int64_t elements, DType dtype) {
    bytes = std::max(bytes, round_up(static_cast<std::uint64_t>(elements) * size_of(dtype), 64));
  };
  for (int i = 0; i < team_size; ++i) {
    members_.push_back(cut(share(shape.n, kGrain, i, team_size)));
    for (const Product &product : members_.back().products) {
      grow(weights_bytes_, product.shape().n * shape.k, shape.in);
      grow(results_bytes_, product.shape().n * product.shape().m, shape.out);
      product_bytes_ = std::max(product_bytes_, product.scratch_bytes());
    }
  }
}

StoredGemm::Part StoredGemm::cut(Range columns) const {
  Part part;
  if (shape_.m == 0) return part;
  const std::int64_t column_bytes = std::max<std::int64_t>(shape_.k, 1) * static_cast<std::int64_t>(size_of(shape_.in));
  const int panels = pieces_of(columns.size(), kPanelBytes / column_bytes), blocks = pieces_of(shape_.m, kBlockRows);
  for (int p = 0; p < panels; ++p) {
    const Range own = share(columns.size(), kGrain, p, panels);
    if (own.size() == 0) continue;
    Panel &panel = part.panels.emplace_back(Panel{{columns.begin + own.begin, columns.begin + own.end}, {}});
    for (int b = 0; b < blocks; ++b) {
      const Range rows = share(shape_.m, kGrain, b, blocks);
      if (rows.size() == 0) continue;
      GemmShape of_block = shape_;
      of_block.m = rows.size();
      of_block.n = own.size();
      of_block.accumulate = shape_.addend;
      of_block.addend = false;
      const auto same = std::ranges::find(part.products, of_block, &Product::shape);
      panel.blocks.push_back({rows.begin, static_cast<std::size_t>(same - part.products.begin())});
      if (same == part.products.end()) part.products.emplace_back(of_block, 1);
    }
  }
  return part;
}

void StoredGemm::run(const Member &member, const GemmOperands &operands, const StoredOperand &from, void *scratch) {
  if (cells_) return cells_->run(member, operands, weights_, from, scratch);
  Part &part = members_[static_cast<std::size_t>(member.index)];
  auto *weights = static_cast<std::byte *>(scratch), *results = weights + weights_bytes_,
       *product_scratch = results + results_bytes_;
  for (const Panel &panel : part.panels) {
    const auto in = static_cast<std::int64_t>(size_of(shape_.in));
    with_float(shape_.in, [&]<typename T>(T) { widen_panel(panel.columns, from, reinterpret_cast<T *>(weights)); });
    const void *bias = nullptr;
    if (shape_.bias) bias = static_cast<const std::byte *>(operands.bias) + panel.columns.begin * in;
    for (const Block &block : panel.blocks) {
      Product &product = part.products[block.product];
      const auto *a = static_cast<const std::byte *>(operands.a) + block.first_row * shape_.k * in;
      with_float(shape_.out, [&]<typename T>(T) {
        const std::int64_t first = block.first_row * shape_.n + panel.columns.begin;
        const std::int64_t rows = product.shape().m, columns = product.shape().n;
        T *dense = reinterpret_cast<T *>(results);
        if (shape_.addend) {
          const T *addend = static_cast<const T *>(operands.addend) + first;
          copy_rows<T>({addend, shape_.n}, rows, columns, {dense, columns});
        }
        product.run(0, {a, weights, results, bias}, product_scratch);
        copy_rows<T>({dense, columns}, rows, columns, {static_cast<T *>(operands.c) + first, shape_.n});
      });
    }
  }
}

// Converts the columns `columns` of b from their stored form to T, and writes them to `to` as a dense panel. The panel
// is (K, columns), or (columns, K) if b is transposed.
template <typename T>
void StoredGemm::widen_panel(Range columns, const StoredOperand &from, T *to) const {
  if (shape_.trans_b) return weights_.read(from, columns.begin * shape_.k, columns.size() * shape_.k, to);
  for (std::int64_t k = 0; k < shape_.k; ++k)
    weights_.read(from, k * shape_.n + columns.begin, columns.size(), to + k * columns.size());
}

WeightGemm::WeightGemm(const GemmShape &shape, int team_size, const std::optional<StoredMatrix> &stored)
    : gemm_(stored ? decltype(gemm_)(StoredGemm(shape, StoredRows(*stored), team_size))
                   : decltype(gemm_)(Gemm(shape, team_size))) {}

std::uint64_t WeightGemm::scratch_bytes() const {
  return std::visit([](const auto &gemm) { return gemm.scratch_bytes(); }, gemm_);
}

void WeightGemm::run(const Member &member, const GemmOperands &operands, const StoredOperand &stored, void *scratch) {
  if (auto *plain = std::get_if<Gemm>(&gemm_)) return plain->run(member, operands, scratch);
  std::get<StoredGemm>(gemm_).run(member, operands, stored, scratch);
}

}  // namespace protrain::backend::cpu
