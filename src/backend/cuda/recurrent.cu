// LstmSteps, GruSteps and RnnSteps.
#include "backend/cuda/recurrent.h"

namespace protrain::backend::cuda {

namespace {
using Cell = RecurrentShape::Cell;

// The operands of a time step. In `x`, `sums` and `gates`, a sample's row holds H numbers for each of several gates.
template <typename T>
struct Step {
  std::int64_t time;
  const T *x, *h, *extra;  // x of this step; the states before the step; peepholes, a bias or nullptr
  const std::int32_t *lengths;
  float *sums;   // products of h and R
  float *fresh;  // of a GRU that resets h: the product of r * h and R
  T *reset;      // r * h
  float *cells;  // (B, H); the step replaces its old cells by its new ones
  T *y, *gates;  // gates: nullptr if not wanted
  float *all_cells;

  // True if sample b is long enough to have this step. In later steps a sample keeps its state.
  __device__ bool reaches(std::int64_t b) const { return lengths == nullptr || time < lengths[b]; }
  __device__ float extra_of(std::int64_t i) const { return extra != nullptr ? widened(extra[i]) : 0.0f; }
};

template <typename T>
__device__ void save(T *gates, std::int64_t at, float value) {
  if (gates != nullptr) gates[at] = narrowed<T>(value);
}

template <typename T>
__device__ void step_lstm(const RecurrentShape &s, const Step<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t n = s.units, row = b * 4 * n + j;
  float &cell = at.cells[b * n + j];
  float i = 0, o = 0, f = 0, g = 0, y = widened(at.h[b * n + j]);
  if (at.reaches(b)) {
    const auto sum = [&](std::int64_t gate) { return at.sums[row + gate * n] + widened(at.x[row + gate * n]); };
    i = activated(s.f, arith::fma(at.extra_of(j), cell, sum(0)));
    f = s.couples ? 1 - i : activated(s.f, arith::fma(at.extra_of(2 * n + j), cell, sum(2)));
    g = activated(s.g, sum(3));
    cell = arith::fma(i, g, f * cell);
    o = activated(s.f, arith::fma(at.extra_of(n + j), cell, sum(1)));
    y = o * activated(s.h, cell);
  }
  at.y[b * n + j] = narrowed<T>(y);
  if (at.all_cells != nullptr) at.all_cells[b * n + j] = cell;
  save(at.gates, row, i);
  save(at.gates, row + n, o);
  save(at.gates, row + 2 * n, f);
  save(at.gates, row + 3 * n, g);
}

template <typename T>
__device__ float gru_gate(const RecurrentShape &s, const Step<T> &at, std::int64_t b, std::int64_t j,
                          std::int64_t gate) {
  const std::int64_t n = s.units, products = s.resets_state ? 2 : 3;
  return activated(s.f, at.sums[(b * products + gate) * n + j] + widened(at.x[(b * 3 + gate) * n + j]));
}

template <typename T>
__device__ void step_gru(const RecurrentShape &s, const Step<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t n = s.units, row = b * s.saved * n + j;
  float z = 0, r = 0, fresh = 0, of_state = 0, y = widened(at.h[b * n + j]);
  if (at.reaches(b)) {
    z = gru_gate(s, at, b, j, 0);
    r = gru_gate(s, at, b, j, 1);
    const float x = widened(at.x[(b * 3 + 2) * n + j]);
    if (s.resets_product) {
      of_state = at.sums[(b * 3 + 2) * n + j] + at.extra_of(j);
      fresh = activated(s.g, arith::fma(r, of_state, x));
    } else {
      fresh = activated(s.g, at.fresh[b * n + j] + x + at.extra_of(j));
    }
    y = arith::fma(z, y - fresh, fresh);
  }
  at.y[b * n + j] = narrowed<T>(y);
  save(at.gates, row, z);
  save(at.gates, row + n, r);
  save(at.gates, row + 2 * n, fresh);
  if (s.resets_product) save(at.gates, row + 3 * n, of_state);
}

template <typename T>
__device__ void step_rnn(const RecurrentShape &s, const Step<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t i = b * s.units + j;
  const float y = at.reaches(b) ? activated(s.f, at.sums[i] + widened(at.x[i])) : widened(at.h[i]);
  at.y[i] = narrowed<T>(y);
}

// The following functions launch kernels. They are not members of the class, because nvcc refuses __device__ lambdas in
// private member functions.
template <typename T>
void begin_cells(Stream stream, const RecurrentShape &shape, const T *from, float *to) {
  each(stream, shape.elements(1),
       [from, to] __device__(std::int64_t i) { to[i] = from != nullptr ? widened(from[i]) : 0.0f; });
}
template <typename T>
void reset_states(Stream stream, const RecurrentShape &shape, const Step<T> &step) {
  each_unit(stream, shape.batch, shape.units, [s = shape, step] __device__(std::int64_t b, std::int64_t j) {
    const std::int64_t i = b * s.units + j;
    step.reset[i] = narrowed<T>(gru_gate(s, step, b, j, 1) * widened(step.h[i]));
  });
}
template <typename T>
void finish_step(Stream stream, const RecurrentShape &shape, const Step<T> &step) {
  each_unit(stream, shape.batch, shape.units, [s = shape, step] __device__(std::int64_t b, std::int64_t j) {
    if (s.cell == Cell::lstm)
      step_lstm(s, step, b, j);
    else if (s.cell == Cell::gru)
      step_gru(s, step, b, j);
    else
      step_rnn(s, step, b, j);
  });
}

template <typename T>
class Recurrent : public CudaKernel {
 public:
  Recurrent(const KernelRequest &request, DeviceState &device)
      : shape_(request),
        first_(device.blas, product_shape(shape_.first_gates())),
        second_(device.blas, shape_.resets_state ? product_shape(1) : GemmShape{}) {
    for (std::size_t i : {kWeights, kFirstState, kExtra, kFirstCell})
      if (has_input(request, i)) require_dtype(request, request.inputs[i], request.inputs[kX].dtype);
    ScratchLayout layout;
    at_.first = layout.take<T>(has_input(request, kFirstState) ? 0 : shape_.elements(1));
    at_.states = layout.take<T>(has_output(request, 0) ? 0 : 2 * shape_.elements(1));
    at_.sums = layout.take<float>(shape_.elements(shape_.gates));
    at_.fresh = layout.take<float>(shape_.resets_state ? shape_.elements(1) : 0);
    at_.reset = layout.take<T>(shape_.resets_state ? shape_.elements(1) : 0);
    at_.cells = layout.take<float>(shape_.cell == Cell::lstm ? shape_.elements(1) : 0);
    at_.product = layout.bytes(std::max(first_.scratch_bytes(), second_.scratch_bytes()));
    scratch_bytes = layout.total();
  }

  void run(Stream stream, const Launch &launch) override {
    const std::int64_t each_step = shape_.elements(1);
    const StepParts<T> y(optional_output<T>(launch, 0), scratch_at<T>(launch, at_.states), each_step);
    const T *h = optional_input<T>(launch, kFirstState);
    if (h == nullptr) fill_zeros(stream, scratch_at<T>(launch, at_.first), each_step);
    if (h == nullptr) h = scratch_at<T>(launch, at_.first);
    if (shape_.cell == Cell::lstm)
      begin_cells(stream, shape_, optional_input<T>(launch, kFirstCell), scratch_at<float>(launch, at_.cells));
    T *gates = optional_output<T>(launch, 1);
    float *cells = optional_output<float>(launch, 2);
    for (std::int64_t k = 0; k < shape_.steps; ++k) {
      const std::int64_t time = shape_.time(k);
      run_step(stream, launch,
               {.time = time,
                .x = input<T>(launch, kX) + time * shape_.elements(shape_.gates),
                .h = h,
                .extra = optional_input<T>(launch, kExtra),
                .lengths = optional_input<std::int32_t>(launch, kLengths),
                .sums = scratch_at<float>(launch, at_.sums),
                .fresh = scratch_at<float>(launch, at_.fresh),
                .reset = scratch_at<T>(launch, at_.reset),
                .cells = scratch_at<float>(launch, at_.cells),
                .y = y.of(time),
                .gates = gates != nullptr ? gates + time * shape_.elements(shape_.saved) : nullptr,
                .all_cells = cells != nullptr ? cells + time * each_step : nullptr});
      h = y.of(time);
    }
  }

 private:
  static constexpr DType kType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;

  // Returns the shape of a step's product for `gates` gates. The product multiplies the states h by the rows of the
  // recurrence weights R that belong to these gates. In a GRU that resets h, the new gate has a product of its own,
  // with r * h instead of h.
  GemmShape product_shape(std::int64_t gates) const {
    const auto bytes = static_cast<std::int64_t>(sizeof(T));
    return {.m = shape_.batch,
            .n = gates * shape_.units,
            .k = shape_.units,
            .trans_b = true,
            .in = kType,
            .alignment = common_alignment({shape_.elements(1) * bytes, shape_.units * shape_.units * bytes})};
  }

  void run_step(Stream stream, const Launch &launch, const Step<T> &step) const {
    void *scratch = scratch_at<void>(launch, at_.product);
    const T *weights = input<T>(launch, kWeights);
    first_.run(stream, GemmOperands{step.h, weights, step.sums}, scratch);
    if (shape_.resets_state) {
      reset_states(stream, shape_, step);
      second_.run(stream, GemmOperands{step.reset, weights + 2 * shape_.units * shape_.units, step.fresh}, scratch);
    }
    finish_step(stream, shape_, step);
  }

  struct Offsets {
    std::uint64_t first, states, sums, fresh, reset, cells, product;
  };

  const RecurrentShape shape_;
  Gemm first_, second_;
  Offsets at_{};
};
}  // namespace

KernelPtr make_recurrent(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(kX),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Recurrent<T>>(request, device); });
}

}  // namespace protrain::backend::cuda
