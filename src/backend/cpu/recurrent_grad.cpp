// LstmStepsGrad, GruStepsGrad and RnnStepsGrad. The kernels go from the last step to the first. A gate is the
// activation of a sum. In each step a member computes the gradients of these sums for its own units. The sums contain
// the product of the previous states and the recurrence weights R, so the previous states get a part of their gradient
// from the sums. To compute this part for its own units, a member multiplies the gradients of all members' sums by its
// own columns of R.
#include <algorithm>

#include "backend/cpu/recurrent.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

namespace {
using Cell = RecurrentShape::Cell;

struct Loops {
  PROTRAIN_CLONES static void add(const float *a, float *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] += a[i];
  }
  PROTRAIN_CLONES static void subtract_products(const float *a, const float *b, float *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = arith::fma(-a[i], b[i], to[i]);
  }
  PROTRAIN_CLONES static void subtract(const float *a, const float *b, float *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] - b[i];
  }
};

// The numbers that the gradient of one step reads and writes, for one sample and the `n` units of a member.
struct SampleStep {
  std::int64_t n;
  const float *gates;   // as forward has saved them
  const float *before;  // a GRU's states or an LSTM's cells before the step
  const float *after;   // an RNN's states or an LSTM's cells after the step
  float *d;             // gradients of the sums of the gates
  float *dh, *dc;       // gradients of states and cells, first after the step, and in the end before it
  float *room;          // n numbers
};

void step_lstm_back(const RecurrentShape &s, const float *peepholes, const SampleStep &at) {
  const std::int64_t n = at.n;
  const float *i = at.gates, *o = i + n, *f = i + 2 * n, *g = i + 3 * n;
  float *di = at.d, *dout = di + n, *df = di + 2 * n, *dg = di + 3 * n, *held = at.room;
  std::copy_n(at.after, n, held);
  activate(s.h, held, n);
  multiply(at.dh, held, dout, n);
  apply_slope(s.f, o, dout, n);
  multiply(at.dh, o, at.dh, n);
  apply_slope(s.h, held, at.dh, n);
  Loops::add(at.dh, at.dc, n);
  if (peepholes != nullptr) add_products(dout, peepholes + n, at.dc, n);
  multiply(at.dc, g, di, n);
  if (s.couples) Loops::subtract_products(at.dc, at.before, di, n);
  apply_slope(s.f, i, di, n);
  if (s.couples) {
    std::fill_n(df, n, 0.0f);
  } else {
    multiply(at.dc, at.before, df, n);
    apply_slope(s.f, f, df, n);
  }
  multiply(at.dc, i, dg, n);
  apply_slope(s.g, g, dg, n);
  multiply(at.dc, f, at.dc, n);
  if (peepholes != nullptr) {
    add_products(di, peepholes, at.dc, n);
    add_products(df, peepholes + 2 * n, at.dc, n);
  }
  std::fill_n(at.dh, n, 0.0f);
}

// Computes a GRU's gradients. If the reset gate multiplies h, finish_reset() computes the gradient of this gate later.
void step_gru_back(const RecurrentShape &s, const SampleStep &at) {
  const std::int64_t n = at.n;
  const float *z = at.gates, *r = z + n, *fresh = z + 2 * n, *of_state = z + 3 * n;
  float *dz = at.d, *dr = dz + n, *dfresh = dz + 2 * n;
  take_complement(z, at.dh, dfresh, n);
  apply_slope(s.g, fresh, dfresh, n);
  Loops::subtract(at.before, fresh, dz, n);
  multiply(at.dh, dz, dz, n);
  apply_slope(s.f, z, dz, n);
  multiply(at.dh, z, at.dh, n);
  if (!s.resets_product) return;
  multiply(dfresh, of_state, dr, n);
  apply_slope(s.f, r, dr, n);
}

// Computes the gradient of the reset gate r before its activation, for a GRU whose r multiplies the state h. `through`
// is the gradient of the product r * h. Also adds the gradient that h gets from this product to at.dh.
void finish_reset(const RecurrentShape &s, const float *through, const SampleStep &at) {
  const float *r = at.gates + at.n;
  float *dr = at.d + at.n;
  multiply(through, at.before, dr, at.n);
  apply_slope(s.f, r, dr, at.n);
  add_products(through, r, at.dh, at.n);
}

void step_rnn_back(const RecurrentShape &s, const SampleStep &at) {
  std::copy_n(at.dh, at.n, at.d);
  apply_slope(s.f, at.after, at.d, at.n);
  std::fill_n(at.dh, at.n, 0.0f);
}

template <typename T>
class RecurrentGrad : public StepsKernel {
 public:
  RecurrentGrad(const KernelRequest &request, int team_size) : StepsKernel(request, team_size, product_shape) {
    for (std::size_t i : {kUpstream, kFirstState, kExtra, kFirstCell, kStates, kGates})
      if (has_input(request, i)) require_dtype(request, request.inputs[i], kDTypeOf<T>);
    const std::int64_t n = most_units(), b = shape_.batch;
    ScratchLayout whole, own;
    at_.dx = whole.take<T>(has_output(request, 0) ? 0 : 2 * shape_.elements(shape_.gates));
    at_.dproduct = whole.take<T>(shape_.resets_product && !has_output(request, 2) ? 2 * shape_.elements(3) : 0);
    at_.dfirst = whole.take<T>(shape_.resets_state ? shape_.elements(2) : 0);
    at_.dfresh = whole.take<T>(shape_.resets_state ? shape_.elements(1) : 0);
    at_.weights = own.take<T>(shape_.gates * shape_.units * n);
    at_.dh = own.take<float>(b * n);
    at_.dc = own.take<float>(b * n);
    at_.through = own.take<float>(shape_.resets_state ? b * n : 0);
    at_.d = own.take<float>((shape_.resets_state ? b : 1) * shape_.gates * n);
    at_.rows = own.take<float>((shape_.saved + 3 + 3) * n);
    finish_layout(whole, own);
  }

  void run(Member &member, const Launch &launch) override {
    const StepParts<T> dx(optional_output<T>(launch, 0), shared<T>(launch, at_.dx), shape_.elements(shape_.gates));
    const StepParts<T> dproduct(shape_.resets_product ? optional_output<T>(launch, 2) : nullptr,
                                shared<T>(launch, at_.dproduct), shape_.elements(3));
    const bool has_units = part(member).units.size() > 0;
    if (has_units) prepare(member, launch);
    const T *after = nullptr;  // the gradients of the products h R one step later
    for (std::int64_t k = shape_.steps; k-- > 0;) {
      const std::int64_t time = shape_.time(k);
      const Step step{k, time, dx.of(time), shape_.resets_product ? dproduct.of(time) : nullptr};
      if (has_units) begin_step(member, launch, step, after);
      if (shape_.resets_state) {
        member.barrier();
        if (has_units) finish_resets(member, launch, step);
      }
      member.barrier();
      const T *of_step = shape_.resets_product ? step.dproduct : step.dx;
      after = shape_.resets_state ? shared<T>(launch, at_.dfirst) : of_step;
    }
    if (has_units) finish(member, launch, after);
  }

 private:
  struct Offsets {
    std::uint64_t dx, dproduct, dfirst, dfresh;       // in the part that the team shares
    std::uint64_t weights, dh, dc, through, d, rows;  // in a member's part
  };
  struct Step {
    std::int64_t k, time;
    T *dx, *dproduct;  // (B, gates * H)
  };

  static GemmShape product_shape(const RecurrentShape &s, int i, std::int64_t n) {
    return {
        .m = s.batch, .n = n, .k = (i == 0 ? s.first_gates() : 1) * s.units, .accumulate = i == 0, .in = kDTypeOf<T>};
  }

  // Copies the member's columns of the recurrence weights R. Sets the gradients of the states and cells after the last
  // step to zero.
  void prepare(const Member &member, const Launch &launch) {
    const UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size();
    T *weights = own<T>(member, launch, at_.weights);
    copy_rows<T>({input<T>(launch, kWeights) + mine.units.begin, shape_.units}, shape_.gates * shape_.units, n,
                 {weights, n});
    lay_out(member, launch, {weights, weights + 2 * shape_.units * n});
    for (std::uint64_t offset : {at_.dh, at_.dc})
      std::fill_n(own<float>(member, launch, offset), shape_.batch * n, 0.0f);
  }

  void begin_step(const Member &member, const Launch &launch, const Step &step, const T *after) {
    if (after != nullptr)
      run_product(member, launch, 0, {after, own<T>(member, launch, at_.weights), own<float>(member, launch, at_.dh)});
    for (std::int64_t b = 0; b < shape_.batch; ++b) step_back(member, launch, step, b);
  }

  // Returns what sample b's step reads, converted to float32.
  SampleStep read(const Member &member, const Launch &launch, const Step &step, std::int64_t b) {
    const UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size(), row = step.time * shape_.batch + b, h = shape_.units;
    const std::int64_t row_before = step.k > 0 ? shape_.time(step.k - 1) * shape_.batch + b : b;
    float *gates = own<float>(member, launch, at_.rows), *before = gates + shape_.saved * n, *after = before + n;
    if (shape_.saved > 0)
      widen_gates(input<T>(launch, kGates) + row * shape_.saved * h, shape_, mine, shape_.saved, gates);
    if (shape_.cell == Cell::lstm) {
      const float *cells = input<float>(launch, kCells);
      const T *first = optional_input<T>(launch, kFirstCell);
      if (step.k > 0)
        std::copy_n(cells + row_before * h + mine.units.begin, n, before);
      else
        widen_or_zero(first == nullptr ? nullptr : first + b * h, mine, before);
      std::copy_n(cells + row * h + mine.units.begin, n, after);
    } else {
      const T *states = input<T>(launch, kStates), *first = optional_input<T>(launch, kFirstState);
      if (step.k == 0)
        widen_or_zero(first == nullptr ? nullptr : first + b * h, mine, before);
      else
        widen_or_zero(states + row_before * h, mine, before);
      widen_or_zero(states + row * h, mine, after);
    }
    const std::int64_t d_row = shape_.resets_state ? b : 0;
    return {n,
            gates,
            before,
            after,
            own<float>(member, launch, at_.d) + d_row * shape_.gates * n,
            own<float>(member, launch, at_.dh) + b * n,
            own<float>(member, launch, at_.dc) + b * n,
            after + n};
  }

  // Computes sample b's gradients in this step. In a GRU whose reset gate multiplies h, some of them depend on the
  // step's second product, and finish_resets() computes these later.
  void step_back(const Member &member, const Launch &launch, const Step &step, std::int64_t b) {
    const UnitPart &mine = part(member);
    const SampleStep at = read(member, launch, step, b);
    const std::int64_t row = (step.time * shape_.batch + b) * shape_.units + mine.units.begin;
    if (const T *dy = optional_input<T>(launch, kUpstream)) {
      widen(dy + row, at.room, at.n);
      Loops::add(at.room, at.dh, at.n);
    }
    if (const float *dcells = optional_input<float>(launch, kCellUpstream)) Loops::add(dcells + row, at.dc, at.n);
    if (!has_step(launch, b, step.time)) {
      std::fill_n(at.d, shape_.gates * at.n, 0.0f);
    } else if (shape_.cell == Cell::lstm) {
      float *peepholes = at.room + at.n;
      const T *extra = optional_input<T>(launch, kExtra);
      if (extra != nullptr) widen_gates(extra, shape_, mine, 3, peepholes);
      step_lstm_back(shape_, extra != nullptr ? peepholes : nullptr, at);
    } else if (shape_.cell == Cell::gru) {
      step_gru_back(shape_, at);
    } else {
      step_rnn_back(shape_, at);
    }
    if (shape_.resets_state)
      narrow(at.d + 2 * at.n, shared<T>(launch, at_.dfresh) + b * shape_.units + mine.units.begin, at.n);
    else
      write(mine, step, b, at);
  }

  // Writes the gradients of sample b's gates to dx. If a GRU's reset gate r multiplies the product h R, then multiplies
  // the gradient of the new gate by r, and writes the gradients to dproduct too.
  void write(const UnitPart &mine, const Step &step, std::int64_t b, const SampleStep &at) const {
    const std::int64_t row = b * shape_.gates * shape_.units;
    narrow_gates(at.d, shape_, mine, shape_.gates, step.dx + row);
    if (step.dproduct == nullptr) return;
    multiply(at.d + 2 * at.n, at.gates + at.n, at.d + 2 * at.n, at.n);
    narrow_gates(at.d, shape_, mine, shape_.gates, step.dproduct + row);
  }

  void finish_resets(const Member &member, const Launch &launch, const Step &step) {
    UnitPart &mine = part(member);
    float *through = own<float>(member, launch, at_.through);
    const T *rows = own<T>(member, launch, at_.weights) + 2 * shape_.units * mine.units.size();
    run_product(member, launch, 1, {shared<T>(launch, at_.dfresh), rows, through});
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      const SampleStep at = read(member, launch, step, b);
      if (has_step(launch, b, step.time)) finish_reset(shape_, through + b * at.n, at);
      write(mine, step, b, at);
      narrow_gates(at.d, shape_, mine, 2, shared<T>(launch, at_.dfirst) + b * 2 * shape_.units);
    }
  }

  // Writes the gradients of the initial states and cells.
  void finish(const Member &member, const Launch &launch, const T *after) {
    UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size();
    const auto put = [&](std::size_t output, std::uint64_t from) {
      T *to = optional_output<T>(launch, output);
      for (std::int64_t b = 0; to != nullptr && b < shape_.batch; ++b)
        narrow(own<float>(member, launch, from) + b * n, to + b * shape_.units + mine.units.begin, n);
    };
    if (after != nullptr && optional_output<T>(launch, 1) != nullptr)
      run_product(member, launch, 0, {after, own<T>(member, launch, at_.weights), own<float>(member, launch, at_.dh)});
    put(1, at_.dh);
    if (shape_.cell == Cell::lstm) put(2, at_.dc);
  }

  Offsets at_{};
};
}  // namespace

KernelPtr make_recurrent_grad(const KernelRequest &request, int team_size) {
  return make_by_float<RecurrentGrad>(request, request.inputs.at(kWeights), team_size);
}

}  // namespace protrain::backend::cpu
