// Replaces src/backend/cuda/blas.cu on machines without a GPU. Plain loops compute the products. As in cuBLASLt, a
// product has several algorithms, which differ in the order of their sums and in their workspace. A product for which
// cuBLASLt has no algorithm has none here.
#include "backend/cuda/blas.h"

#include <bit>
#include <cstring>

#include "arith/bf16.h"
#include "backend/cuda/launch.h"
#include "base/error.h"
#include "cuda/products.h"

namespace protrain::backend::cuda {

namespace {
using arith::bf16;

GemmShape last;

// The order in which an algorithm adds the terms of a sum: from the first to the last, from the last to the first, or
// in two halves.
enum Order : std::uint64_t { forwards, backwards, halves, kOrders };
constexpr std::uint64_t kWorkspace[kOrders] = {256, 0, 1024};  // bytes, which each product overwrites
constexpr std::byte kLoaded[kOrders] = {};                     // addresses that stand for kernels

std::uint64_t mark_of(const GemmShape &s) { return static_cast<std::uint64_t>(s.m * 31 * 31 + s.n * 31 + s.k); }

template <typename Term>
float sum_of(Order order, std::int64_t begin, std::int64_t end, Term term) {
  if (order == halves) {
    const std::int64_t middle = (begin + end) / 2;
    return sum_of(forwards, begin, middle, term) + sum_of(forwards, middle, end, term);
  }
  float sum = 0;
  for (std::int64_t l = begin; l < end; ++l) sum += term(order == backwards ? begin + end - 1 - l : l);
  return sum;
}

// A float32 factor that is rounded to TensorFloat32, which has 10 bits of mantissa. Ties are rounded away from 0.
struct Tf32 {
  std::uint32_t bits;
};
float widened(Tf32 x) { return std::bit_cast<float>((x.bits + 0x1000u) & ~0x1FFFu); }
using arith::widened;

template <typename In, typename Out>
void multiply(const GemmShape &s, const GemmOperands &o, Order order) {
  const GemmRows ld(s);
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    const In *a = static_cast<const In *>(o.a) + batch * s.stride_a,
             *b = static_cast<const In *>(o.b) + batch * s.stride_b;
    Out *c = static_cast<Out *>(o.c) + batch * s.stride_c;
    const Out *added = o.addend != nullptr ? static_cast<const Out *>(o.addend) + batch * s.stride_c : c;
    const Out *bias = s.bias ? static_cast<const Out *>(o.bias) : nullptr;
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        float sum = s.alpha * sum_of(order, 0, s.k, [&](std::int64_t l) {
                      return widened(s.trans_a ? a[l * ld.a + i] : a[i * ld.a + l]) *
                             widened(s.trans_b ? b[j * ld.b + l] : b[l * ld.b + j]);
                    });
        if (s.accumulate) sum += arith::widened(added[i * ld.c + j]);
        if (bias != nullptr) sum += arith::widened(bias[j]);
        c[i * ld.c + j] = arith::narrowed<Out>(sum);
      }
  }
}
}  // namespace

Blas::Blas(bool tf32) : tf32_(tf32) {}
Blas::~Blas() = default;
std::string Blas::version() const { return tf32_ ? "emulated with TF32" : "emulated"; }

struct Product::State {
  GemmShape shape;
  bool tf32;
};

Product::Product(Blas &blas, const GemmShape &shape) : state_(std::make_unique<State>(State{shape, blas.tf32()})) {
  require(shape.m * shape.n * shape.k * shape.batch > 0, Code::device, "device", "a matrix: of nothing");
  last = shape;
}
Product::~Product() = default;
Product::Product(Product &&) noexcept = default;

std::vector<Algorithm> Product::algorithms() const {
  const GemmShape &s = state_->shape;
  const GemmRows ld(s);
  if (s.batch > kMostBatch) return {};
  if (s.bias && s.in == DType::bf16 && (ld.a | ld.b | ld.c) % 2 != 0) return {};
  std::vector<Algorithm> found;
  for (std::uint64_t order = 0; order < kOrders; ++order) found.push_back({{order, mark_of(s)}, kWorkspace[order]});
  return found;
}

void Product::run(Stream stream, const GemmOperands &operands, const Algorithm &algorithm, void *workspace) const {
  const GemmShape shape = state_->shape;
  for (const void *at : {operands.a, operands.b, static_cast<const void *>(operands.c), operands.addend})
    require(reinterpret_cast<std::uintptr_t>(at) % shape.alignment == 0, Code::internal, "gemm",
            "an operand is not aligned to the {} bytes that were promised", shape.alignment);
  require(algorithm.words[0] < kOrders && algorithm.words[1] == mark_of(shape), Code::device, "device",
          "a product could not be issued: the algorithm is another product's");
  const auto order = static_cast<Order>(algorithm.words[0]);
  require(algorithm.workspace == kWorkspace[order] &&
              (algorithm.workspace == 0 || reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment == 0),
          Code::device, "device", "a product could not be issued: its workspace");
  emulation::load(stream, kLoaded + order);
  emulation::append(stream, [shape, operands, order, workspace, tf32 = state_->tf32] {
    std::memset(workspace, 0xA5, kWorkspace[order]);
    if (shape.in == DType::f32 && tf32) return multiply<Tf32, float>(shape, operands, order);
    if (shape.in == DType::f32) return multiply<float, float>(shape, operands, order);
    shape.out == DType::f32 ? multiply<bf16, float>(shape, operands, order)
                            : multiply<bf16, bf16>(shape, operands, order);
  });
}

}  // namespace protrain::backend::cuda

protrain::backend::cuda::GemmShape protrain::emulation::last_product() { return backend::cuda::last; }
