#include "backend/cpu/product.h"

#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/cpu/floats.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/transpose.h"
#include "backend/cpu/widened_product.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
dnnl::memory::desc matrix(DType type, std::int64_t rows, std::int64_t columns, bool transposed = false) {
  return {{rows, columns}, onednn_type(type), transposed ? dnnl::memory::format_tag::ba : dnnl::memory::format_tag::ab};
}

// Describes a packed b: blocks of 16 rows and 64 columns of float32, or of 32 rows and 64 columns of bfloat16, in which
// two rows are interleaved. Blocks of the same columns follow each other.
dnnl::memory::desc packed_matrix(DType type, std::int64_t rows, std::int64_t columns) {
  using Tag = dnnl::memory::format_tag;
  return {{rows, columns}, onednn_type(type), type == DType::f32 ? Tag::BA16a64b : Tag::BA16a64b2a};
}

// Returns true if a post-op, the last one, must add the bias after the product. This is the case if alpha is not 1,
// because oneDNN multiplies a product's own bias by alpha too.
bool adds_bias_behind(const GemmShape &s) { return s.bias && s.alpha != 1; }

dnnl::matmul::primitive_desc describe(const GemmShape &s) {
  const auto a = matrix(s.in, s.m, s.k, s.trans_a);
  const auto b = s.packed_b ? packed_matrix(s.in, s.k, s.n) : matrix(s.in, s.k, s.n, s.trans_b);
  const auto c = matrix(s.out, s.m, s.n), bias = matrix(s.in, 1, s.n);
  dnnl::primitive_attr attributes = onednn_attributes();
  dnnl::post_ops behind;
  if (s.alpha != 1) scale_result(attributes, behind, s.alpha);
  if (s.accumulate) behind.append_sum(1);
  if (adds_bias_behind(s)) behind.append_binary(dnnl::algorithm::binary_add, bias);
  attributes.set_post_ops(behind);
  const bool own_bias = s.bias && !adds_bias_behind(s);
  return own_bias ? describe_primitive<dnnl::matmul>(attributes, a, b, bias, c)
                  : describe_primitive<dnnl::matmul>(attributes, a, b, c);
}

// Returns the argument through which a product gets its bias.
int bias_argument(const GemmShape &s, const dnnl::matmul::primitive_desc &description) {
  if (!adds_bias_behind(s)) return DNNL_ARG_BIAS;
  return DNNL_ARG_ATTR_MULTIPLE_POST_OP(description.get_primitive_attr().get_post_ops().len() - 1) | DNNL_ARG_SRC_1;
}

bool is_brgemm(std::string_view implementation) { return implementation.starts_with("brg"); }

// Finds oneDNN's implementation of a shape. oneDNN has none for float16. For bfloat16 only brgemm is taken, because
// every other implementation allocates, or is slower than float32.
std::optional<dnnl::matmul::primitive_desc> find_implementation(const GemmShape &shape) {
  if (shape.in == DType::f16) return std::nullopt;
  if (shape.in == DType::f32) return describe(shape);
  try {
    auto found = describe(shape);
    if (is_brgemm(found.impl_info_str())) return found;
  } catch (const dnnl::error &error) {
    if (error.status != dnnl_unimplemented) throw;
  }
  return std::nullopt;
}

// With AMX, PackedProduct has code of its own, which is faster.
bool finds_packed(DType type) {
  require_room_for_primitive();
  try {
    const auto found = find_implementation({.m = 64, .n = 64, .k = 64, .packed_b = true, .in = type, .out = type});
    const std::string_view name = found ? found->impl_info_str() : "";
    return is_brgemm(name) && name.find("avx512_core") != name.npos && name.find("amx") == name.npos;
  } catch (const dnnl::error &error) {
    if (error.status != dnnl_unimplemented) throw;
    return false;
  }
}

struct Seat {
  dnnl::memory a, b, c, bias, scratch;
  std::array<dnnl_exec_arg_t, 5> arguments;
  int argument_count = 0;
};
}  // namespace

struct Product::State {
  GemmShape shape;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  std::uint64_t scratch_bytes = 0;
  std::vector<Seat> seats;  // empty if K = 0 or c has no elements, or if oneDNN does not compute the product
  std::unique_ptr<WidenedProduct> widened;
};

Product::Product(const GemmShape &shape, int seats) : state_(std::make_unique<State>()) {
  State &s = *state_;
  s.shape = shape;
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return;
  require(!shape.bias || !shape.accumulate, Code::internal, "gemm", "a bias does not go with accumulation");
  require_room_for_primitive();
  try {
    const auto found = find_implementation(shape);
    if (!found) {
      s.widened = std::make_unique<WidenedProduct>(shape, seats);
      s.scratch_bytes = s.widened->scratch_bytes();
      return;
    }
    s.description = *found;
    s.primitive = dnnl::matmul(s.description);
    s.scratch_bytes = round_up(s.description.scratchpad_desc().get_size(), 64);
    s.seats.resize(static_cast<std::size_t>(seats));
    for (Seat &seat : s.seats) {
      auto add = [&](int name, dnnl::memory &memory, const dnnl::memory::desc &description) {
        memory = dnnl::memory(description, onednn_engine(), nullptr);
        seat.arguments[static_cast<std::size_t>(seat.argument_count++)] = {name, memory.get()};
      };
      add(DNNL_ARG_SRC, seat.a, s.description.src_desc());
      add(DNNL_ARG_WEIGHTS, seat.b, s.description.weights_desc());
      add(DNNL_ARG_DST, seat.c, s.description.dst_desc());
      add(DNNL_ARG_SCRATCHPAD, seat.scratch, s.description.scratchpad_desc());
      if (shape.bias) add(bias_argument(shape, s.description), seat.bias, matrix(shape.in, 1, shape.n));
    }
  } catch (const dnnl::error &error) {
    fail_to_make(error, fmt::format("a product of {} x {} x {}", shape.m, shape.k, shape.n));
  }
}

bool Product::takes_packed(DType in) {
  static const bool takes_f32 = finds_packed(DType::f32), takes_bf16 = finds_packed(DType::bf16);
  return in == DType::f32 ? takes_f32 : in == DType::bf16 && takes_bf16;
}

Product::~Product() = default;
Product::Product(Product &&) noexcept = default;

std::uint64_t Product::scratch_bytes() const { return state_->scratch_bytes; }

const GemmShape &Product::shape() const { return state_->shape; }

std::string Product::implementation() const {
  return state_->widened ? "widened" : state_->description.impl_info_str();
}

namespace {
// Computes c if K = 0. The product is then zero. If the product is added to c, c stays as it is. Otherwise each row of
// c becomes the bias, or zeros if there is no bias.
void fill_rows(const GemmShape &s, const GemmOperands &operands) {
  if (s.accumulate) return;
  const std::size_t row_bytes = static_cast<std::size_t>(s.n) * size_of(s.out);
  auto *row = static_cast<std::byte *>(operands.c);
  for (std::int64_t i = 0; i < s.m; ++i, row += row_bytes) {
    if (!s.bias)
      std::memset(row, 0, row_bytes);
    else if (s.in == s.out)
      std::memcpy(row, operands.bias, row_bytes);
    else
      with_float(s.in, [&]<typename T>(T) {
        widen(static_cast<const T *>(operands.bias), reinterpret_cast<float *>(row), s.n);
      });
  }
}
}  // namespace

void Product::run(int index, const GemmOperands &operands, void *scratch) {
  State &s = *state_;
  if (s.widened) return s.widened->run(index, operands, scratch);
  if (s.seats.empty()) return fill_rows(s.shape, operands);
  Seat &seat = s.seats[static_cast<std::size_t>(index)];
  dnnl_status_t status = point(seat.a, operands.a);
  if (status == dnnl_success) status = point(seat.b, operands.b);
  if (status == dnnl_success) status = point(seat.c, operands.c);
  if (status == dnnl_success) status = point(seat.scratch, scratch);
  if (status == dnnl_success && s.shape.bias) status = point(seat.bias, operands.bias);
  execute(status, s.primitive, {seat.arguments.data(), static_cast<std::size_t>(seat.argument_count)}, "a product");
}

void copy_rows_of_a(const GemmShape &shape, Range rows, Range depth, const void *a, void *to) {
  const auto copy = [&]<typename T>(const T *from, T *target) {
    if (shape.trans_a)
      transpose<T>({from + depth.begin * shape.m + rows.begin, shape.m}, depth.size(), rows.size(),
                   {target, depth.size()});
    else
      copy_rows<T>({from + rows.begin * shape.k + depth.begin, shape.k}, rows.size(), depth.size(),
                   {target, depth.size()});
  };
  if (size_of(shape.in) == sizeof(float)) return copy(static_cast<const float *>(a), static_cast<float *>(to));
  copy(static_cast<const std::uint16_t *>(a), static_cast<std::uint16_t *>(to));
}

}  // namespace protrain::backend::cpu
