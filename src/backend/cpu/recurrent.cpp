// LstmSteps, GruSteps and RnnSteps. Before the first step each member copies the rows of the recurrence weights R that
// belong to its units. The copy is a dense, transposed matrix, which stays in the member's cache for all steps.
#include "backend/cpu/recurrent.h"

#include <algorithm>

#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

namespace {
using Cell = RecurrentShape::Cell;

template <typename F>
struct ActivationLoops {
  PROTRAIN_CLONES static void value(const arith::Activation &a, float *row, std::int64_t count) {
    const arith::Activation own = a;
    for (std::int64_t i = 0; i < count; ++i) row[i] = arith::value_of<F>(own, row[i]);
  }
  PROTRAIN_CLONES static void slope(const arith::Activation &a, const float *values, float *__restrict row,
                                    std::int64_t count) {
    const arith::Activation own = a;
    for (std::int64_t i = 0; i < count; ++i) row[i] *= arith::slope_of<F>(own, values[i]);
  }
};
}  // namespace

void activate(const arith::Activation &a, float *row, std::int64_t count) {
  arith::with_activation(a.kind, [&](auto f) { ActivationLoops<decltype(f)>::value(a, row, count); });
}
void apply_slope(const arith::Activation &a, const float *values, float *row, std::int64_t count) {
  arith::with_activation(a.kind, [&](auto f) { ActivationLoops<decltype(f)>::slope(a, values, row, count); });
}

PROTRAIN_CLONES
void multiply(const float *a, const float *b, float *to, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] * b[i];
}
PROTRAIN_CLONES
void add_products(const float *a, const float *b, float *to, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) to[i] = arith::fma(a[i], b[i], to[i]);
}
PROTRAIN_CLONES
void take_complement(const float *a, const float *b, float *to, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) to[i] = (1.0f - a[i]) * b[i];
}
PROTRAIN_CLONES
void mix(const float *z, const float *h, const float *fresh, float *to, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) to[i] = arith::fma(z[i], h[i] - fresh[i], fresh[i]);
}

StepsKernel::StepsKernel(const KernelRequest &request, int team_size, ShapeOf shape_of)
    : shape_(request), parts_(static_cast<std::size_t>(team_size)) {
  constexpr std::int64_t kUnitGrain = 16;  // a vector of float32
  for (int i = 0; i < team_size; ++i) {
    UnitPart &part = parts_[static_cast<std::size_t>(i)];
    part.units = share(shape_.units, kUnitGrain, i, team_size);
    for (int product = 0; part.units.size() > 0 && product < (shape_.resets_state ? 2 : 1); ++product)
      part.products.emplace_back(shape_of(shape_, product, part.units.size()));
  }
}

std::int64_t StepsKernel::most_units() const {
  std::int64_t most = 0;
  for (const UnitPart &part : parts_) most = std::max(most, part.units.size());
  return most;
}

void StepsKernel::finish_layout(const ScratchLayout &whole, ScratchLayout own) {
  std::uint64_t product_bytes = 0;
  std::array<std::int64_t, 2> laid{};
  for (const UnitPart &part : parts_)
    for (std::size_t i = 0; i < part.products.size(); ++i) {
      product_bytes = std::max(product_bytes, part.products[i].scratch_bytes());
      laid[i] = std::max(laid[i], part.products[i].laid_elements());
    }
  product_at_ = own.bytes(product_bytes);
  for (std::size_t i = 0; i < laid.size(); ++i) laid_at_[i] = own.take<float>(laid[i]);
  whole_bytes_ = whole.total();
  own_bytes_ = own.total();
  scratch_bytes = checked_add(whole_bytes_, checked_multiply(own_bytes_, parts_.size()));
}

void StepsKernel::lay_out(const Member &member, const Launch &launch, std::initializer_list<const void *> factors) {
  std::vector<StepProduct> &products = part(member).products;
  for (std::size_t i = 0; i < products.size(); ++i)
    products[i].lay_out(static_cast<const float *>(factors.begin()[i]), own<float>(member, launch, laid_at_[i]));
}

void StepsKernel::run_product(const Member &member, const Launch &launch, std::size_t product,
                              const GemmOperands &operands) {
  part(member).products[product].run(operands, own<float>(member, launch, laid_at_[product]),
                                     own<void>(member, launch, product_at_));
}

namespace {
// Computes the cells and states of `n` units of a sample. `gates` holds the sums of the gates i, o, f and c before the
// call, and the gates themselves after it.
void step_lstm(const RecurrentShape &s, const float *peepholes, std::int64_t n, float *gates, float *cells, float *y) {
  float *i = gates, *o = gates + n, *f = gates + 2 * n, *g = gates + 3 * n;
  if (peepholes != nullptr) {
    add_products(peepholes, cells, i, n);
    add_products(peepholes + 2 * n, cells, f, n);
  }
  activate(s.f, i, n);
  if (s.couples)
    for (std::int64_t j = 0; j < n; ++j) f[j] = 1 - i[j];
  else
    activate(s.f, f, n);
  activate(s.g, g, n);
  multiply(f, cells, cells, n);
  add_products(i, g, cells, n);
  if (peepholes != nullptr) add_products(peepholes + n, cells, o, n);
  activate(s.f, o, n);
  std::copy_n(cells, n, y);
  activate(s.h, y, n);
  multiply(o, y, y, n);
}

template <typename T>
class Recurrent : public StepsKernel {
 public:
  Recurrent(const KernelRequest &request, int team_size) : StepsKernel(request, team_size, product_shape) {
    for (std::size_t i : {kWeights, kFirstState, kExtra, kFirstCell})
      if (has_input(request, i)) require_dtype(request, request.inputs[i], kDTypeOf<T>);
    const std::int64_t n = most_units(), b = shape_.batch;
    ScratchLayout whole, own;
    at_.first = whole.take<T>(has_input(request, kFirstState) ? 0 : shape_.elements(1));
    at_.reset = whole.take<T>(shape_.resets_state ? shape_.elements(1) : 0);
    at_.states = whole.take<T>(has_output(request, 0) ? 0 : 2 * shape_.elements(1));
    at_.weights = own.take<T>(shape_.gates * n * shape_.units);
    at_.sums = own.take<float>(b * shape_.first_gates() * n);
    at_.fresh = own.take<float>(shape_.cell == Cell::gru ? b * n : 0);
    at_.cells = own.take<float>(shape_.cell == Cell::lstm ? b * n : 0);
    at_.extra = own.take<float>(3 * n);
    at_.row = own.take<float>(2 * n);
    finish_layout(whole, own);
  }

  void run(Member &member, const Launch &launch) override {
    const StepParts<T> y(optional_output<T>(launch, 0), shared<T>(launch, at_.states), shape_.elements(1));
    const T *h = optional_input<T>(launch, kFirstState);
    if (h == nullptr) h = shared<T>(launch, at_.first);
    prepare(member, launch);
    member.barrier();
    for (std::int64_t k = 0; k < shape_.steps; ++k) {
      const std::int64_t time = shape_.time(k);
      step(member, launch, time, h, y.of(time));
      member.barrier();
      h = y.of(time);
    }
  }

 private:
  struct Offsets {
    std::uint64_t first, reset, states;                     // in the part that the team shares
    std::uint64_t weights, sums, fresh, cells, extra, row;  // in a member's part
  };

  static GemmShape product_shape(const RecurrentShape &s, int i, std::int64_t n) {
    return {.m = s.batch, .n = n * (i == 0 ? s.first_gates() : 1), .k = s.units, .accumulate = true, .in = kDTypeOf<T>};
  }

  // Prepares the first step: copies the rows of the recurrence weights R that belong to the member's units, sets the
  // cells to their first values, and fills absent operands with zeros.
  void prepare(const Member &member, const Launch &launch) {
    const UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size(), width = shape_.first_gates() * n;
    if (optional_input<T>(launch, kFirstState) == nullptr) {
      const Range rows = share(shape_.batch, 1, member);
      std::fill_n(shared<T>(launch, at_.first) + rows.begin * shape_.units, rows.size() * shape_.units, T{});
    }
    if (n == 0) return;
    T *weights = own<T>(member, launch, at_.weights);
    for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
      const T *rows = input<T>(launch, kWeights) + (gate * shape_.units + mine.units.begin) * shape_.units;
      const bool first = gate < shape_.first_gates();
      T *to = weights + (first ? gate * n : width * shape_.units);
      transpose<T>({rows, shape_.units}, n, shape_.units, {to, first ? width : n});
    }
    lay_out(member, launch, {weights, weights + width * shape_.units});
    const T *extra = optional_input<T>(launch, kExtra);
    float *room = own<float>(member, launch, at_.extra);
    if (extra != nullptr)
      widen_gates(extra, shape_, mine, shape_.cell == Cell::lstm ? 3 : 1, room);
    else
      std::fill_n(room, n, 0.0f);
    const T *cells = optional_input<T>(launch, kFirstCell);
    for (std::int64_t b = 0; shape_.cell == Cell::lstm && b < shape_.batch; ++b)
      widen_or_zero(cells == nullptr ? nullptr : cells + b * shape_.units, mine,
                    own<float>(member, launch, at_.cells) + b * n);
  }

  void step(Member &member, const Launch &launch, std::int64_t time, const T *h, T *y) {
    UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size(), width = shape_.first_gates() * n;
    T *weights = own<T>(member, launch, at_.weights), *reset = shared<T>(launch, at_.reset);
    float *sums = own<float>(member, launch, at_.sums), *fresh = own<float>(member, launch, at_.fresh);
    if (n > 0) {
      begin_sums(member, launch, time);
      run_product(member, launch, 0, {h, weights, sums});
    }
    if (shape_.resets_state) {
      float *row = own<float>(member, launch, at_.row);
      for (std::int64_t b = 0; b < shape_.batch && n > 0; ++b) {
        activate(shape_.f, sums + b * width, width);
        widen(h + b * shape_.units + mine.units.begin, row, n);
        multiply(row, sums + b * width + n, row, n);
        narrow(row, reset + b * shape_.units + mine.units.begin, n);
      }
      member.barrier();
      if (n > 0) run_product(member, launch, 1, {reset, weights + width * shape_.units, fresh});
    }
    for (std::int64_t b = 0; b < shape_.batch && n > 0; ++b) finish_row(member, launch, time, b, h, y);
  }

  // Sets the sums of the gates to the part that comes from x and from a GRU's bias. The products of the states h and
  // the recurrence weights R are added later.
  void begin_sums(const Member &member, const Launch &launch, std::int64_t time) {
    const UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size(), width = shape_.first_gates() * n, columns = shape_.gates * shape_.units;
    float *sums = own<float>(member, launch, at_.sums), *fresh = own<float>(member, launch, at_.fresh);
    const float *bias = own<float>(member, launch, at_.extra);
    const T *x = input<T>(launch, kX) + time * shape_.elements(shape_.gates);
    for (std::int64_t b = 0; b < shape_.batch; ++b, x += columns, sums += width, fresh += n) {
      widen_gates(x, shape_, mine, shape_.cell == Cell::gru ? 2 : shape_.gates, sums);
      if (shape_.cell != Cell::gru) continue;
      widen(x + 2 * shape_.units + mine.units.begin, fresh, n);
      if (shape_.resets_product) std::copy_n(bias, n, sums + 2 * n);
      if (shape_.resets_state)
        for (std::int64_t j = 0; j < n; ++j) fresh[j] += bias[j];
    }
  }

  // Computes the states of sample b after the step, and saves its gates.
  void finish_row(const Member &member, const Launch &launch, std::int64_t time, std::int64_t b, const T *h, T *y) {
    const UnitPart &mine = part(member);
    const std::int64_t n = mine.units.size(), row = time * shape_.batch + b;
    float *gates = own<float>(member, launch, at_.sums) + b * shape_.first_gates() * n;
    float *cells = own<float>(member, launch, at_.cells) + b * n,
          *fresh = own<float>(member, launch, at_.fresh) + b * n;
    float *room = own<float>(member, launch, at_.row), *state = room + n;
    widen(h + b * shape_.units + mine.units.begin, state, n);
    const bool goes_on = has_step(launch, b, time);
    if (goes_on && shape_.cell == Cell::lstm) {
      const float *peepholes =
          optional_input<T>(launch, kExtra) != nullptr ? own<float>(member, launch, at_.extra) : nullptr;
      step_lstm(shape_, peepholes, n, gates, cells, state);
    } else if (goes_on && shape_.cell == Cell::gru) {
      if (shape_.resets_product) {
        activate(shape_.f, gates, 2 * n);
        add_products(gates + n, gates + 2 * n, fresh, n);
      }
      activate(shape_.g, fresh, n);
      mix(gates, state, fresh, state, n);
    } else if (goes_on) {
      activate(shape_.f, gates, n);
      std::copy_n(gates, n, state);
    } else {
      std::fill_n(gates, shape_.first_gates() * n, 0.0f);
      if (shape_.cell == Cell::gru) std::fill_n(fresh, n, 0.0f);
    }
    narrow(state, y + b * shape_.units + mine.units.begin, n);
    if (float *to = optional_output<float>(launch, 2))
      std::copy_n(cells, n, to + row * shape_.units + mine.units.begin);
    if (T *to = optional_output<T>(launch, 1)) save_gates(mine, gates, fresh, to + row * shape_.saved * shape_.units);
  }

  // Saves the gates of a sample. A GRU saves its gates z, r and the new gate. If r multiplies the new gate's
  // product h R, the GRU saves this product too.
  void save_gates(const UnitPart &mine, const float *gates, const float *fresh, T *to) const {
    const std::int64_t n = mine.units.size();
    narrow_gates(gates, shape_, mine, shape_.cell == Cell::gru ? 2 : shape_.saved, to);
    if (shape_.cell != Cell::gru) return;
    narrow(fresh, to + 2 * shape_.units + mine.units.begin, n);
    if (shape_.resets_product) narrow(gates + 2 * n, to + 3 * shape_.units + mine.units.begin, n);
  }

  Offsets at_{};
};
}  // namespace

KernelPtr make_recurrent(const KernelRequest &request, int team_size) {
  return make_by_float<Recurrent>(request, request.inputs.at(kX), team_size);
}

}  // namespace protrain::backend::cpu
