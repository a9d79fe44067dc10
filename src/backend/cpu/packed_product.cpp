#include "backend/cpu/packed_product.h"

#include <algorithm>
#include <utility>

#include "backend/common/clones.h"
#include "backend/cpu/amx.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/packing.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/transpose.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kRowGrain = 16;                      // rows of c are cut at multiples of this
constexpr std::int64_t kMostPanelRows = 256;                // rows of a panel
constexpr std::int64_t kAmxGroupColumns = 1024;             // most columns of a group, whose sums stay in a cache
constexpr std::int64_t kGroupBytes = 1 << 20;               // of a packed group, which then stays in a core's cache
constexpr std::int64_t kHeldBytes = 4 << 20;                // of an operand that is copied once and used many times
constexpr std::int64_t kAllHeldBytes = 64 << 20;            // of all members' held operands
constexpr std::int64_t kCutRows = 1024, kCutColumns = 512;  // of a strip and a group, if K is cut
constexpr std::int64_t kRowsTogether = 8;  // rows of b that go to one block before the next block gets its part
constexpr std::int64_t kCopyCost = 128;    // multiply-adds that take as long as packing one element

std::int64_t int_size(DType type) { return static_cast<std::int64_t>(size_of(type)); }

std::uint64_t bytes_of(std::int64_t elements, DType type) {
  return round_up(static_cast<std::uint64_t>(elements) * size_of(type), 64);
}

std::int64_t row_grain(const GemmShape &s) { return s.panel_rows > 0 ? s.panel_rows : kRowGrain; }

// Returns how many rows of cells the grid has. With this number a member multiplies and copies least. Rows of a that
// are not copied count too, because they are read again for every column of cells. If the caller has set the rows of a
// panel, the number does not depend on M.
int grid_rows(const GemmShape &s, int team_size) {
  const std::int64_t all_rows = s.panel_rows > 0 ? s.panel_rows : s.m;
  const auto cost = [&](int rows) {
    const std::int64_t height = divided_up(divided_up(all_rows, row_grain(s)), rows) * row_grain(s);
    const std::int64_t width = divided_up(divided_up(s.n, kPackedColumns), team_size / rows) * kPackedColumns;
    return height * width + kCopyCost * (width + (s.trans_a ? height : height / 4));
  };
  int best = 1;
  for (int rows = 2; rows <= team_size; ++rows)
    if (team_size % rows == 0 && cost(rows) <= cost(best)) best = rows;
  return best;
}

bool takes_amx(DType in) { return in == DType::bf16 && has_amx(); }

// Returns the depth of a part of K. Cutting K costs copies of a, so K is cut only if it is so large that a group or a
// strip would be too narrow. With AMX only a transposed a is copied.
std::int64_t part_depth(const GemmShape &s) {
  const std::int64_t part_bytes = 4 << 10;
  const std::int64_t whole_bytes = s.trans_a ? 16 << 10 : takes_amx(s.in) ? part_bytes : 32 << 10;
  if (s.k * int_size(s.in) <= whole_bytes) return s.k;
  return part_size(s.k, part_bytes / int_size(s.in), packed_block_rows(s.in));
}

// Reads rows of b in the order in which b is stored. read() returns `count` elements of each of `rows` rows, from
// element `first` on. It may write them to `to`. prefetch() tells the processor that rows will be read soon.
template <typename T>
struct PlainSource {
  const T *b;
  std::int64_t ld;

  ConstRows<T> read(std::int64_t row, std::int64_t, std::int64_t first, std::int64_t, T *) const {
    return {b + row * ld + first, ld};
  }
  void prefetch(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t i = row; i < row + rows; ++i)
      for (std::int64_t j = first; j < first + count; j += kLine) __builtin_prefetch(b + i * ld + j);
  }
};
template <typename T>
struct WeightSource {
  const StoredRows &weights;
  const StoredOperand &stored;
  std::int64_t ld;

  ConstRows<T> read(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count, T *to) const {
    for (std::int64_t i = 0; i < rows; ++i) weights.read(stored, (row + i) * ld + first, count, to + i * count);
    return {to, count};
  }
  void prefetch(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const {}
};

// Packs the rows `depth` of b, in the columns `columns`.
template <typename T, typename Source>
void pack(const Source &source, Range columns, Range depth, T *widened, T *to) {
  const std::int64_t rows_of_blocks = packed_rows(depth.size(), kDTypeOf<T>);
  for (std::int64_t k = depth.begin; k < depth.end; k += kRowsTogether) {
    const Range rows = part_at(k, kRowsTogether, depth.end), next = part_at(rows.end, kRowsTogether, depth.end);
    const ConstRows<T> from = source.read(rows.begin, rows.size(), columns.begin, columns.size(), widened);
    for (std::int64_t j = 0; j < columns.size(); j += kPackedColumns) {
      const std::int64_t width = std::min(kPackedColumns, columns.size() - j);
      source.prefetch(next.begin, next.size(), columns.begin + j, width);
      pack_rows({from.at + j, from.ld}, rows.size(), width,
                to + j * rows_of_blocks + (k - depth.begin) * kPackedColumns);
    }
  }
}

// Packs the same if b is stored transposed. Two neighbours of 16 bits stay neighbours, so words are transposed.
template <typename T, typename Source>
void pack_transposed(const Source &source, Range columns, Range depth, T *widened, T *to) {
  using Word = std::uint32_t;
  constexpr std::int64_t kInWord = sizeof(Word) / sizeof(T);
  for (std::int64_t j = 0; j < columns.size(); j += kRowGrain) {
    const Range rows = part_at(columns.begin + j, kRowGrain, columns.end);
    const ConstRows<T> from = source.read(rows.begin, rows.size(), depth.begin, depth.size(), widened);
    T *block = to + j / kPackedColumns * kPackedColumns * packed_rows(depth.size(), kDTypeOf<T>);
    transpose<Word>({reinterpret_cast<const Word *>(from.at), from.ld / kInWord}, rows.size(), depth.size() / kInWord,
                    {reinterpret_cast<Word *>(block) + j % kPackedColumns, kPackedColumns});
  }
}

// Calls act(part) for every part of `all` that has this size. The last part can be smaller.
template <typename Act>
void for_each_part(Range all, std::int64_t size, Act act) {
  for (std::int64_t first = all.begin; first < all.end; first += size) act(part_at(first, size, all.end));
}

// Returns parts of all the sizes that occur if `all` is cut into parts of this size.
std::vector<Range> parts_of_each_size(Range all, std::int64_t size) {
  if (all.size() == 0) return {};
  std::vector<Range> parts = {part_at(all.begin, size, all.end)};
  if (const std::int64_t rest = all.size() % size; rest != all.size() && rest != 0)
    parts.push_back({all.end - rest, all.end});
  return parts;
}

// Makes a row of c from the sums of its products. At most one of `bias` and `added` is not null.
template <typename T, typename C>
struct FinishRow {
  PROTRAIN_CLONES static void run(const float *__restrict sums, float alpha, const T *bias, const C *added,
                                  std::int64_t count, C *c) {
    if (bias) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) c[i] = narrowed<C>(sums[i] * alpha + widened(bias[i]));
    } else if (added) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) c[i] = narrowed<C>(sums[i] * alpha + widened(added[i]));
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) c[i] = narrowed<C>(sums[i] * alpha);
    }
  }
};

// Makes a panel of c from the sums of its products: c = alpha * sums, plus the bias, the addend or c itself.
template <typename T, typename C>
void finish_panel(const GemmShape &s, const GemmOperands &operands, Range rows, Range columns, Rows<float> sums) {
  const std::int64_t first = rows.begin * s.n + columns.begin, count = columns.size();
  const T *bias = s.bias ? static_cast<const T *>(operands.bias) + columns.begin : nullptr;
  C *c = static_cast<C *>(operands.c) + first;
  const C *added = s.addend ? static_cast<const C *>(operands.addend) + first : s.accumulate ? c : nullptr;
  for (std::int64_t i = 0; i < rows.size(); ++i, sums.at += sums.ld, c += s.n) {
    FinishRow<T, C>::run(sums.at, s.alpha, bias, added, count, c);
    if (added) added += s.n;
  }
}

// Loads a panel of c into scratch, before products are added to it.
template <typename C>
void load_panel(ConstRows<C> c, std::int64_t rows, std::int64_t columns, DType sum_type, void *to) {
  if (sum_type == kDTypeOf<C>) return copy_rows<C>(c, rows, columns, {static_cast<C *>(to), columns});
  for (std::int64_t i = 0; i < rows; ++i) widen(c.at + i * c.ld, static_cast<float *>(to) + i * columns, columns);
}
template <typename C>
void store_panel(const void *from, DType sum_type, std::int64_t rows, std::int64_t columns, Rows<C> c) {
  if (sum_type == kDTypeOf<C>) return copy_rows<C>({static_cast<const C *>(from), columns}, rows, columns, c);
  for (std::int64_t i = 0; i < rows; ++i)
    narrow(static_cast<const float *>(from) + i * columns, c.at + i * c.ld, columns);
}
}  // namespace

bool PackedProduct::takes(DType in) { return takes_amx(in) || Product::takes_packed(in); }

// Packing pays for itself if enough rows of a are multiplied by the packed b, and if c has enough work for each of its
// elements, because c is copied too. In bfloat16, oneDNN always copies b, and its copies are slow. In float32 it reads
// b in place. That is as fast as packing, unless a row of b is longer than two pages of memory.
bool PackedProduct::is_faster(const GemmShape &s) {
  constexpr std::int64_t kLeastRows = 8, kLeastColumns = 256, kLeastDepth = 256, kLeastDepthOfAmx = 16;
  constexpr std::int64_t kRowsInPlace = 256, kColumnsInPlace = 2048;  // of b in float32
  if (!takes(s.in) || (s.addend && !takes_amx(s.in))) return false;
  const std::int64_t rows = s.panel_rows > 0 ? s.panel_rows : s.m;
  if (rows < kLeastRows || s.n < kLeastColumns || s.k < (takes_amx(s.in) ? kLeastDepthOfAmx : kLeastDepth))
    return false;
  if (s.in == DType::f32) return s.trans_b || (rows >= kRowsInPlace && s.n > kColumnsInPlace);
  return !s.trans_b || s.k % 2 == 0;  // pack_transposed() takes whole words
}

PackedProduct::PackedProduct(const GemmShape &shape, int team_size)
    : shape_(shape),
      team_size_(team_size),
      grid_rows_(grid_rows(shape, team_size)),
      uses_amx_(takes_amx(shape.in)),
      sizes_(choose_sizes()),
      sum_type_(cuts_depth() || uses_amx_ ? DType::f32 : shape.out),
      bytes_{} {
  const std::int64_t rows_of_sums = cuts_depth() ? sizes_.strip_rows : sizes_.panel_rows;
  bytes_.b = bytes_of(sizes_.group_columns * packed_rows(sizes_.depth, shape.in), shape.in);
  if (copies_a()) bytes_.a = bytes_of(sizes_.strip_rows * sizes_.depth, shape.in);
  const bool all_in_place = sizes_.group_columns >= shape.n && sum_type_ == shape.out && !uses_amx_;
  if (!all_in_place) bytes_.sums = bytes_of(rows_of_sums * sizes_.group_columns, sum_type_);
  bytes_.widened = bytes_of(shape.trans_b ? kRowGrain * sizes_.depth : kRowsTogether * sizes_.group_columns, shape.in);
  for (int i = 0; i < team_size && !uses_amx_; ++i) {
    products_.push_back(products_of(cell(i)));
    for (const Product &product : products_.back()) bytes_.product = std::max(bytes_.product, product.scratch_bytes());
  }
}

PackedProduct::Cell PackedProduct::cell(int index) const {
  const int grid_columns = team_size_ / grid_rows_;
  return {share(shape_.m, row_grain(shape_), index / grid_columns, grid_rows_),
          share(shape_.n, kPackedColumns, index % grid_columns, grid_columns)};
}

// If a is copied, one of the operands is held: it is copied once, and the other one is copied again for each of the
// held operand's parts. b is held if all columns of the cell fit, because then a needs no second copy at all. AMX is so
// fast that a held b must stay in a core's cache, so a is held there.
PackedProduct::Sizes PackedProduct::choose_sizes() const {
  const auto [rows, columns] = cell(0);  // no cell is larger
  const std::int64_t depth = part_depth(shape_), row_bytes = depth * int_size(shape_.in);
  const std::int64_t panel_rows = uses_amx_               ? kAmxRows
                                  : shape_.panel_rows > 0 ? shape_.panel_rows
                                                          : part_size(rows.size(), kMostPanelRows, kRowGrain);
  const std::int64_t held_bytes = std::clamp(kAllHeldBytes / team_size_, kGroupBytes, kHeldBytes);
  std::int64_t most_rows = rows.size(), most_columns = kGroupBytes / row_bytes;
  if (uses_amx_) most_columns = std::min(most_columns, kAmxGroupColumns);
  if (depth < shape_.k) {
    most_rows = kCutRows;
    if (!uses_amx_) most_columns = kCutColumns;
  } else if (shape_.trans_a && !uses_amx_ && columns.size() * row_bytes <= held_bytes) {
    most_rows = panel_rows;
    most_columns = columns.size();
  } else if (shape_.trans_a) {
    most_rows = held_bytes / row_bytes;
  }
  return {.panel_rows = panel_rows,
          .strip_rows = part_size(rows.size(), std::max(most_rows, panel_rows), panel_rows),
          .group_columns = part_size(columns.size(), std::max(most_columns, kPackedColumns), kPackedColumns),
          .depth = depth};
}

GemmShape PackedProduct::shape_of(const Part &part) const {
  return {.m = part.rows.size(),
          .n = part.columns.size(),
          .k = part.depth.size(),
          .packed_b = true,
          .accumulate = shape_.accumulate || part.depth.begin > 0,
          .bias = shape_.bias && part.depth.begin == 0,
          .alpha = shape_.alpha,
          .in = shape_.in,
          .out = sum_type_};
}

std::vector<Product> PackedProduct::products_of(const Cell &cell) const {
  std::vector<Range> depths = parts_of_each_size({0, shape_.k}, sizes_.depth);
  if (cuts_depth()) depths.push_back(part_at(sizes_.depth, sizes_.depth, shape_.k));  // the first part that adds
  std::vector<Product> products;
  for (const Range rows : parts_of_each_size(cell.rows, sizes_.panel_rows))
    for (const Range columns : parts_of_each_size(cell.columns, sizes_.group_columns))
      for (const Range depth : depths) {
        const GemmShape shape = shape_of({rows, columns, depth});
        if (std::ranges::find(products, shape, &Product::shape) == products.end()) products.emplace_back(shape, 1);
      }
  return products;
}

template <typename T>
PackedProduct::Scratch<T> PackedProduct::lay_out(void *scratch) const {
  auto *at = static_cast<std::byte *>(scratch);
  const auto take = [&](std::uint64_t bytes) { return std::exchange(at, at + bytes); };
  Scratch<T> all{};
  all.b = reinterpret_cast<T *>(take(bytes_.b));
  all.a = reinterpret_cast<T *>(take(bytes_.a));
  all.sums = take(bytes_.sums);
  all.widened = reinterpret_cast<T *>(take(bytes_.widened));
  all.product = take(bytes_.product);
  return all;
}

template <typename T>
void PackedProduct::multiply_panel_with_amx(const Part &part, const GemmOperands &operands, const Scratch<T> &at) {
  const auto &[rows, columns, depth] = part;
  const auto *a = reinterpret_cast<const bf16 *>(at.a);
  if (!copies_a()) a = static_cast<const bf16 *>(operands.a) + rows.begin * shape_.k + depth.begin;
  const Rows<float> sums{static_cast<float *>(at.sums), sizes_.group_columns};
  multiply_with_amx({{a, copies_a() ? depth.size() : shape_.k}, reinterpret_cast<const bf16 *>(at.b), sums},
                    rows.size(), columns.size(), depth.size(), depth.begin > 0);
  if (depth.end < shape_.k) return;
  with_float(shape_.out, [&]<typename C>(C) { finish_panel<T, C>(shape_, operands, rows, columns, sums); });
}

// Multiplies a panel of a by the packed columns of b.
template <typename T>
void PackedProduct::multiply_panel(int index, const Part &part, const GemmOperands &operands, const Scratch<T> &at) {
  if (uses_amx_) return multiply_panel_with_amx(part, operands, at);
  auto &products = products_[static_cast<std::size_t>(index)];
  Product &product = *std::ranges::find(products, shape_of(part), &Product::shape);
  const auto &[rows, columns, depth] = part;
  const T *a = copies_a() ? at.a : static_cast<const T *>(operands.a) + rows.begin * shape_.k;
  const T *bias = shape_.bias ? static_cast<const T *>(operands.bias) + columns.begin : nullptr;
  with_float(shape_.out, [&]<typename C>(C) {
    C *c = static_cast<C *>(operands.c) + rows.begin * shape_.n + columns.begin;
    if (is_in_place(columns)) return product.run(0, {a, at.b, c, bias}, at.product);
    if (shape_.accumulate && depth.begin == 0)
      load_panel<C>({c, shape_.n}, rows.size(), columns.size(), sum_type_, at.sums);
    product.run(0, {a, at.b, at.sums, bias}, at.product);
    if (depth.end == shape_.k) store_panel<C>(at.sums, sum_type_, rows.size(), columns.size(), {c, shape_.n});
  });
}

template <typename T, typename Source>
void PackedProduct::multiply(int index, const GemmOperands &operands, const Source &source, const Scratch<T> &scratch) {
  const Cell own = cell(index);
  const auto pack_group = [&](Range columns, Range depth) {
    clear_edges(columns.size(), depth.size(), scratch.b);
    if (shape_.trans_b)
      pack_transposed(source, columns, depth, scratch.widened, scratch.b);
    else
      pack(source, columns, depth, scratch.widened, scratch.b);
  };
  const auto multiply_strip = [&](Range strip, Range columns, Range depth) {
    const bool needs_a = copies_a() && (cuts_depth() || columns.begin == own.columns.begin);
    for_each_part(strip, sizes_.panel_rows, [&](Range rows) {
      const Part part{rows, columns, depth};
      const std::int64_t row = rows.begin - strip.begin;
      Scratch<T> at = scratch;
      at.a += row * depth.size();
      if (cuts_depth()) at.sums = static_cast<float *>(at.sums) + row * sizes_.group_columns;
      if (needs_a) copy_rows_of_a(shape_, rows, depth, operands.a, at.a);
      multiply_panel(index, part, operands, at);
    });
  };
  for_each_part(own.rows, sizes_.strip_rows, [&](Range strip) {
    for_each_part(own.columns, sizes_.group_columns, [&](Range columns) {
      const bool is_held = !cuts_depth() && columns.size() == own.columns.size();
      for_each_part({0, shape_.k}, sizes_.depth, [&](Range depth) {
        if (!is_held || strip.begin == own.rows.begin) pack_group(columns, depth);
        multiply_strip(strip, columns, depth);
      });
    });
  });
}

void PackedProduct::run(const Member &member, const GemmOperands &operands, void *scratch) {
  with_float(shape_.in, [&]<typename T>(T) {
    const PlainSource<T> source{static_cast<const T *>(operands.b), shape_.trans_b ? shape_.k : shape_.n};
    multiply(member.index, operands, source, lay_out<T>(scratch));
  });
}

void PackedProduct::run(const Member &member, const GemmOperands &operands, const StoredRows &weights,
                        const StoredOperand &stored, void *scratch) {
  with_float(shape_.in, [&]<typename T>(T) {
    const WeightSource<T> source{weights, stored, shape_.trans_b ? shape_.k : shape_.n};
    multiply(member.index, operands, source, lay_out<T>(scratch));
  });
}

}  // namespace protrain::backend::cpu
