// LstmStepsGrad, GruStepsGrad and RnnStepsGrad: backpropagation through time, from the last step to the first.
#include "backend/cuda/recurrent.h"

namespace protrain::backend::cuda {

namespace {
using Cell = RecurrentShape::Cell;

// The operands of a time step. An LSTM reads `cells_before`, the cells before the step, and a GRU reads
// `states_before`, the states before the step. At the first step, the LSTM and the GRU read `first` instead.
template <typename T>
struct StepBack {
  std::int64_t time;
  const T *dy, *extra, *first, *gates, *states;  // nullptr if absent; `first`: the layer's first cells or states
  const std::int32_t *lengths;
  const T *states_before;  // nullptr at the first step
  const float *cells, *cells_before, *dcells;
  T *dx, *dproduct;  // gradients of x, and of h R if a GRU resets h R
  float *dh, *dc;    // (B, H): gradients after the step, which become those before it
  float *through;    // of a GRU that resets h: the gradient of r * h

  __device__ bool reaches(std::int64_t b) const { return lengths == nullptr || time < lengths[b]; }
  __device__ float extra_of(std::int64_t i) const { return extra != nullptr ? widened(extra[i]) : 0.0f; }
  __device__ float first_of(std::int64_t i) const { return first != nullptr ? widened(first[i]) : 0.0f; }
};

template <typename T>
__device__ void step_lstm_back(const RecurrentShape &s, const StepBack<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t n = s.units, row = b * 4 * n + j, unit = b * n + j;
  const float i = widened(at.gates[row]), o = widened(at.gates[row + n]), f = widened(at.gates[row + 2 * n]),
              g = widened(at.gates[row + 3 * n]);
  const float before = at.cells_before != nullptr ? at.cells_before[unit] : at.first_of(unit);
  const float held = activated(s.h, at.cells[unit]), dh = at.dh[unit];
  const float dout = dh * held * slope_at(s.f, o);
  float dc = at.dc[unit] + dh * o * slope_at(s.h, held);
  dc = arith::fma(dout, at.extra_of(n + j), dc);
  const float di = (s.couples ? arith::fma(-dc, before, dc * g) : dc * g) * slope_at(s.f, i);
  const float df = s.couples ? 0.0f : dc * before * slope_at(s.f, f);
  at.dx[row] = narrowed<T>(di);
  at.dx[row + n] = narrowed<T>(dout);
  at.dx[row + 2 * n] = narrowed<T>(df);
  at.dx[row + 3 * n] = narrowed<T>(dc * i * slope_at(s.g, g));
  at.dc[unit] = arith::fma(df, at.extra_of(2 * n + j), arith::fma(di, at.extra_of(j), dc * f));
  at.dh[unit] = 0;
}

template <typename T>
__device__ void step_gru_back(const RecurrentShape &s, const StepBack<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t n = s.units, row = b * s.saved * n + j, to = b * 3 * n + j, unit = b * n + j;
  const float z = widened(at.gates[row]), r = widened(at.gates[row + n]), fresh = widened(at.gates[row + 2 * n]);
  const float before = at.states_before != nullptr ? widened(at.states_before[unit]) : at.first_of(unit);
  const float dh = at.dh[unit], dfresh = (1 - z) * dh * slope_at(s.g, fresh);
  const T dz = narrowed<T>((before - fresh) * dh * slope_at(s.f, z));
  at.dh[unit] = dh * z;
  at.dx[to] = dz;
  at.dx[to + 2 * n] = narrowed<T>(dfresh);
  if (!s.resets_product) return;
  const T dr = narrowed<T>(dfresh * widened(at.gates[row + 3 * n]) * slope_at(s.f, r));
  at.dx[to + n] = dr;
  at.dproduct[to] = dz;
  at.dproduct[to + n] = dr;
  at.dproduct[to + 2 * n] = narrowed<T>(dfresh * r);
}

// Computes the gradient of a reset gate that multiplies h. Adds to dh the gradient that h gets from the product r * h.
template <typename T>
__device__ void finish_reset(const RecurrentShape &s, const StepBack<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t n = s.units, unit = b * n + j;
  const float r = widened(at.gates[(b * 3 + 1) * n + j]), through = at.through[unit];
  const float before = at.states_before != nullptr ? widened(at.states_before[unit]) : at.first_of(unit);
  at.dx[(b * 3 + 1) * n + j] = narrowed<T>(through * before * slope_at(s.f, r));
  at.dh[unit] = arith::fma(through, r, at.dh[unit]);
}

template <typename T>
__device__ void step_back(const RecurrentShape &s, const StepBack<T> &at, std::int64_t b, std::int64_t j) {
  const std::int64_t unit = b * s.units + j;
  if (at.dy != nullptr) at.dh[unit] += widened(at.dy[unit]);
  if (at.dcells != nullptr) at.dc[unit] += at.dcells[unit];
  if (!at.reaches(b)) {
    for (std::int64_t gate = 0; gate < s.gates; ++gate) {
      at.dx[(b * s.gates + gate) * s.units + j] = T{};
      if (at.dproduct != nullptr) at.dproduct[(b * s.gates + gate) * s.units + j] = T{};
    }
  } else if (s.cell == Cell::lstm) {
    step_lstm_back(s, at, b, j);
  } else if (s.cell == Cell::gru) {
    step_gru_back(s, at, b, j);
  } else {
    at.dx[unit] = narrowed<T>(at.dh[unit] * slope_at(s.f, widened(at.states[unit])));
    at.dh[unit] = 0;
  }
}

// The following functions launch kernels. They are not members of the class, because nvcc refuses __device__ lambdas in
// private member functions.
template <typename T>
void begin_step(Stream stream, const RecurrentShape &shape, const StepBack<T> &step) {
  each_unit(stream, shape.batch, shape.units,
            [s = shape, step] __device__(std::int64_t b, std::int64_t j) { step_back(s, step, b, j); });
}
template <typename T>
void finish_resets(Stream stream, const RecurrentShape &shape, const StepBack<T> &step) {
  each_unit(stream, shape.batch, shape.units, [s = shape, step] __device__(std::int64_t b, std::int64_t j) {
    if (step.reaches(b)) finish_reset(s, step, b, j);
  });
}
template <typename T>
void round_states(Stream stream, const RecurrentShape &shape, const float *from, T *to) {
  each(stream, shape.elements(1), [from, to] __device__(std::int64_t i) { to[i] = narrowed<T>(from[i]); });
}

template <typename T>
class RecurrentGrad : public CudaKernel {
 public:
  RecurrentGrad(const KernelRequest &request, DeviceState &device)
      : shape_(request),
        first_(device.blas, product_shape(shape_.first_gates(), true)),
        second_(device.blas, shape_.resets_state ? product_shape(1, false) : GemmShape{}) {
    for (std::size_t i : {kUpstream, kFirstState, kExtra, kFirstCell, kStates, kGates})
      if (has_input(request, i)) require_dtype(request, request.inputs[i], request.inputs[kWeights].dtype);
    ScratchLayout layout;
    at_.dx = layout.take<T>(has_output(request, 0) ? 0 : 2 * shape_.elements(shape_.gates));
    at_.dproduct = layout.take<T>(shape_.resets_product && !has_output(request, 2) ? 2 * shape_.elements(3) : 0);
    at_.dh = layout.take<float>(shape_.elements(1));
    at_.dc = layout.take<float>(shape_.elements(1));
    at_.through = layout.take<float>(shape_.resets_state ? shape_.elements(1) : 0);
    at_.product = layout.bytes(std::max(first_.scratch_bytes(), second_.scratch_bytes()));
    scratch_bytes = layout.total();
  }

  void run(Stream stream, const Launch &launch) override {
    const StepParts<T> dx(optional_output<T>(launch, 0), scratch_at<T>(launch, at_.dx), shape_.elements(shape_.gates));
    const StepParts<T> dproduct(shape_.resets_product ? optional_output<T>(launch, 2) : nullptr,
                                scratch_at<T>(launch, at_.dproduct), shape_.elements(3));
    float *dh = scratch_at<float>(launch, at_.dh), *dc = scratch_at<float>(launch, at_.dc);
    fill_zeros(stream, dh, shape_.elements(1));
    fill_zeros(stream, dc, shape_.elements(1));
    const T *after = nullptr;  // the gradients of the products h R one step later
    for (std::int64_t k = shape_.steps; k-- > 0;) {
      StepBack<T> step = step_of(launch, k);
      step.dx = dx.of(step.time);
      if (shape_.resets_product) step.dproduct = dproduct.of(step.time);
      run_step(stream, launch, step, after);
      after = shape_.resets_product ? step.dproduct : step.dx;
    }
    if (T *to = optional_output<T>(launch, 1)) {
      if (after != nullptr) add_product(stream, launch, after);
      round_states(stream, shape_, dh, to);
    }
    if (T *to = shape_.cell == Cell::lstm ? optional_output<T>(launch, 2) : nullptr)
      round_states(stream, shape_, dc, to);
  }

 private:
  static constexpr DType kType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;

  // Returns the shape of a product that takes the gradients of `gates` gates at one step, which are columns of the
  // step's dx or dproduct, and multiplies them by the rows of the recurrence weights R that belong to these gates.
  // `accumulate` true: the gates are the first ones of the cell, and the product is added to dh. `accumulate` false:
  // `gates` is 1, for the third gate of a GRU that resets h.
  GemmShape product_shape(std::int64_t gates, bool accumulate) const {
    const auto bytes = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t first = accumulate ? 0 : 2 * shape_.units;  // column of dx and row of R
    return {.m = shape_.batch,
            .n = shape_.units,
            .k = gates * shape_.units,
            .accumulate = accumulate,
            .in = kType,
            .ld_a = shape_.gates * shape_.units,
            .alignment = common_alignment({shape_.elements(shape_.gates) * bytes, first * bytes})};
  }

  StepBack<T> step_of(const Launch &launch, std::int64_t k) const {
    const std::int64_t time = shape_.time(k), each_step = shape_.elements(1);
    const auto at = [&](const auto *operand, std::int64_t columns) {
      return operand != nullptr ? operand + time * columns * each_step : nullptr;
    };
    const auto before = [&](const auto *operand) {
      return operand != nullptr && k > 0 ? operand + shape_.time(k - 1) * each_step : nullptr;
    };
    const bool lstm = shape_.cell == Cell::lstm;
    const T *states = optional_input<T>(launch, kStates);
    const float *cells = optional_input<float>(launch, kCells);
    return {.time = time,
            .dy = at(optional_input<T>(launch, kUpstream), 1),
            .extra = optional_input<T>(launch, kExtra),
            .first = optional_input<T>(launch, lstm ? kFirstCell : kFirstState),
            .gates = at(optional_input<T>(launch, kGates), shape_.saved),
            .states = at(states, 1),
            .lengths = optional_input<std::int32_t>(launch, kLengths),
            .states_before = before(states),
            .cells = at(cells, 1),
            .cells_before = before(cells),
            .dcells = at(optional_input<float>(launch, kCellUpstream), 1),
            .dx = nullptr,
            .dproduct = nullptr,
            .dh = scratch_at<float>(launch, at_.dh),
            .dc = scratch_at<float>(launch, at_.dc),
            .through = scratch_at<float>(launch, at_.through)};
  }

  void add_product(Stream stream, const Launch &launch, const T *after) const {
    first_.run(stream, GemmOperands{after, input<T>(launch, kWeights), scratch_at<float>(launch, at_.dh)},
               scratch_at<void>(launch, at_.product));
  }

  void run_step(Stream stream, const Launch &launch, const StepBack<T> &step, const T *after) const {
    if (after != nullptr) add_product(stream, launch, after);
    begin_step(stream, shape_, step);
    if (!shape_.resets_state) return;
    const std::int64_t first = 2 * shape_.units;
    second_.run(stream, GemmOperands{step.dx + first, input<T>(launch, kWeights) + first * shape_.units, step.through},
                scratch_at<void>(launch, at_.product));
    finish_resets(stream, shape_, step);
  }

  struct Offsets {
    std::uint64_t dx, dproduct, dh, dc, through, product;
  };

  const RecurrentShape shape_;
  Gemm first_, second_;
  Offsets at_{};
};
}  // namespace

KernelPtr make_recurrent_grad(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(kWeights),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<RecurrentGrad<T>>(request, device); });
}

}  // namespace protrain::backend::cuda
