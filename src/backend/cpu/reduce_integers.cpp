// ReduceSum, ReduceMax, ReduceMin of int64 and int32. Models use them for small tensors, such as counts of labels and
// lengths of masks, so the loops simply go element by element. Sums wrap around.
#include <algorithm>
#include <limits>

#include "backend/common/axes.h"
#include "backend/cpu/elementwise.h"

namespace protrain::backend::cpu {

namespace {
template <typename T>
class ReduceIntegers : public CpuKernel {
 public:
  explicit ReduceIntegers(const KernelRequest &request)
      : kind_(request.node.op == "ReduceSum"   ? Kind::sum
              : request.node.op == "ReduceMax" ? Kind::largest
                                               : Kind::smallest) {
    const Shape &shape = request.inputs.at(0).shape;
    const Strides strides = row_major_strides(shape);
    const std::vector<bool> reduced = reduced_axes(request);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      Layout<1> &layout = reduced[i] ? reduced_ : kept_;
      layout.dims.push_back(shape[i]);
      layout.strides[0].push_back(strides[i]);
    }
    kept_ = merged(kept_, subject(request));
    reduced_ = merged(reduced_, subject(request));
  }

  void run(Member &member, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    for_each_run(kept_, share(kept_.count(), 1, member), [&](std::int64_t at, const auto &from, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) y[at + i] = reduce(x + from[0] + i * kept_.inner_stride(0));
    });
  }

 private:
  enum class Kind : std::uint8_t { sum, largest, smallest };

  T reduce(const T *x) const {
    using Unsigned = std::make_unsigned_t<T>;
    using Limits = std::numeric_limits<T>;
    T total = kind_ == Kind::sum ? T{0} : kind_ == Kind::largest ? Limits::min() : Limits::max();
    for_each_run(reduced_, {0, reduced_.count()}, [&](std::int64_t, const auto &from, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const T value = x[from[0] + i * reduced_.inner_stride(0)];
        if (kind_ == Kind::sum)
          total = static_cast<T>(static_cast<Unsigned>(total) + static_cast<Unsigned>(value));
        else
          total = kind_ == Kind::largest ? std::max(total, value) : std::min(total, value);
      }
    });
    return total;
  }

  const Kind kind_;
  Layout<1> kept_, reduced_;
};
}  // namespace

KernelPtr make_reduce_integers(const KernelRequest &request) {
  require(request.node.op != "ReduceMean", Code::unsupported, subject(request), "the cpu has no mean of integers");
  if (request.inputs.at(0).dtype == DType::i32) return std::make_unique<ReduceIntegers<std::int32_t>>(request);
  return std::make_unique<ReduceIntegers<std::int64_t>>(request);
}

}  // namespace protrain::backend::cpu
