// Cast among float32, bfloat16, float64, int64, int32 and bool.
#include "arith/cast.h"

#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
using arith::Bool;

template <typename From, typename To>
class Cast : public CudaKernel {
 public:
  explicit Cast(const KernelRequest &request) : count_(element_count(request.outputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    const From *x = input<From>(launch, 0);
    To *y = output<To>(launch, 0);
    each(stream, count_, [x, y] __device__(std::int64_t i) { y[i] = arith::converted<To>(x[i]); });
  }

 private:
  const std::int64_t count_;
};

template <typename Make>
KernelPtr by_type(const KernelRequest &request, DType dtype, Make make) {
  switch (dtype) {
    case DType::f32:
      return make(float{});
    case DType::bf16:
      return make(bf16{});
    case DType::f64:
      return make(double{});
    case DType::i64:
      return make(std::int64_t{});
    case DType::i32:
      return make(std::int32_t{});
    case DType::boolean:
      return make(Bool{});
    default:
      fail(Code::unsupported, subject(request), "cuda casts float32, bfloat16, float64, int64, int32 and bool, not {}",
           name_of(dtype));
  }
}
}  // namespace

KernelPtr make_cast(const KernelRequest &request, DeviceState &) {
  return by_type(request, request.inputs.at(0).dtype, [&]<typename From>(From) {
    return by_type(request, request.outputs[0].dtype,
                   [&]<typename To>(To) -> KernelPtr { return std::make_unique<Cast<From, To>>(request); });
  });
}

}  // namespace protrain::backend::cuda
