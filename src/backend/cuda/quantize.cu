// DequantizeLinear, FakeQuantize and its gradient.
#include "backend/common/quantized.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {

template <typename T>
class Dequantize : public CudaKernel {
 public:
  explicit Dequantize(const KernelRequest &request)
      : shape_(request, request.outputs.at(0).shape, 1), form_(quantised_form(request)) {}

  void run(Stream stream, const Launch &launch) override {
    const void *q = launch.inputs[0], *zeros = optional_input<void>(launch, 2);
    const float *scale = input<float>(launch, 1);
    T *y = output<T>(launch, 0);
    each(stream, shape_.count, [q, zeros, scale, y, shape = shape_, form = form_] __device__(std::int64_t i) {
      y[i] = narrowed<T>(arith::dequantized(stored_at(form, q, i), scale[shape.scale(i)], shape.zero_at(zeros, i)));
    });
  }

 private:
  const QuantisedShape shape_;
  const StoredForm form_;
};

template <typename T>
class FakeQuantize : public CudaKernel {
 public:
  explicit FakeQuantize(const KernelRequest &request) : shape_(request, request.outputs.at(0).shape, 1) {}

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    const float *scale = input<float>(launch, 1);
    const void *zeros = optional_input<void>(launch, 2);
    T *y = output<T>(launch, 0);
    each(stream, shape_.count, [x, scale, zeros, y, shape = shape_] __device__(std::int64_t i) {
      y[i] = narrowed<T>(
          arith::fake_quantized(widened(x[i]), scale[shape.scale(i)], shape.zero_at(zeros, i), shape.range));
    });
  }

 private:
  const QuantisedShape shape_;
};

template <typename T>
class FakeQuantizeGrad : public CudaKernel {
 public:
  explicit FakeQuantizeGrad(const KernelRequest &request) : shape_(request, request.outputs.at(0).shape, 2) {}

  void run(Stream stream, const Launch &launch) override {
    const T *dy = input<T>(launch, 0), *x = input<T>(launch, 1);
    const float *scale = input<float>(launch, 2);
    const void *zeros = optional_input<void>(launch, 3);
    T *dx = output<T>(launch, 0);
    each(stream, shape_.count, [dy, x, scale, zeros, dx, shape = shape_] __device__(std::int64_t i) {
      dx[i] = narrowed<T>(arith::fake_quantized_grad(widened(dy[i]), widened(x[i]), scale[shape.scale(i)],
                                                     shape.zero_at(zeros, i), shape.range));
    });
  }

 private:
  const QuantisedShape shape_;
};

}  // namespace

KernelPtr make_dequantize(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.outputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Dequantize<T>>(request); });
}
KernelPtr make_fake_quantize(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.outputs.at(0), [&]<typename T>(T) -> KernelPtr {
    if (request.node.op == "FakeQuantize") return std::make_unique<FakeQuantize<T>>(request);
    return std::make_unique<FakeQuantizeGrad<T>>(request);
  });
}

}  // namespace protrain::backend::cuda
