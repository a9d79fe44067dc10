// The reference arithmetic of LstmSteps, GruSteps, RnnSteps and their gradients, one sample after the other.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ops/evaluate.h"
#include "ops/recurrent.h"

namespace protrain::ops {

namespace {

using Doubles = std::vector<double>;
using Integers = std::vector<std::int64_t>;
using Cell = RecurrentSettings::Cell;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

constexpr RecurrentActivation kRecurrentActivations[] = {
    {"Sigmoid", 0, 0, false, false, [](double x, double, double) { return sigmoid_of(x); },
     [](double y, double, double) { return y * (1 - y); }},
    {"Tanh", 0, 0, false, false, [](double x, double, double) { return std::tanh(x); },
     [](double y, double, double) { return 1 - y * y; }},
    {"Relu", 0, 0, false, false, [](double x, double, double) { return std::max(x, 0.0); },
     [](double y, double, double) { return y > 0 ? 1.0 : 0.0; }},
    {"Affine", NAN, NAN, true, true, [](double x, double a, double b) { return a * x + b; },
     [](double, double a, double) { return a; }},
    {"LeakyRelu", 0.01, 0, true, false, [](double x, double a, double) { return x > 0 ? x : a * x; },
     [](double y, double a, double) { return y > 0 ? 1 : a; }},
    {"ThresholdedRelu", 1, 0, true, false, [](double x, double a, double) { return x > a ? x : 0; },
     [](double y, double, double) { return y != 0 ? 1.0 : 0.0; }},
    {"ScaledTanh", NAN, NAN, true, true, [](double x, double a, double b) { return a * std::tanh(b * x); },
     [](double y, double a, double b) { return a == 0 ? 0 : b * (a - y * y / a); }},
    {"HardSigmoid", 0.2, 0.5, true, true, [](double x, double a, double b) { return std::clamp(a * x + b, 0.0, 1.0); },
     [](double y, double a, double) { return y > 0 && y < 1 ? a : 0; }},
    {"Elu", 1, 0, true, false, [](double x, double a, double) { return x > 0 ? x : a * std::expm1(x); },
     [](double y, double a, double) { return y > 0 ? 1 : y + a; }},
    {"Softsign", 0, 0, false, false, [](double x, double, double) { return x / (1 + std::abs(x)); },
     [](double y, double, double) { return (1 - std::abs(y)) * (1 - std::abs(y)); }},
    {"Softplus", 0, 0, false, false,
     [](double x, double, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
     [](double y, double, double) { return -std::expm1(-y); }},
};

Cell cell_of(std::string_view op) {
  return op.starts_with("Lstm") ? Cell::lstm : op.starts_with("Gru") ? Cell::gru : Cell::rnn;
}

std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

// Inputs 1 to 5 of a node, which are the same for forward nodes and gradient nodes. If the lengths are absent, every
// sample has all steps. Other absent inputs are zeros.
struct Operands {
  Operands(const RecurrentSettings &s, Inputs in) : r(in[1]->doubles()), lengths(index_of(s.batch), s.steps) {
    const auto read = [&](std::size_t i, std::int64_t count) {
      return optional_input(in, i) != nullptr ? in[i]->doubles() : Doubles(index_of(count), 0.0);
    };
    h0 = read(2, s.batch * s.units);
    if (optional_input(in, 3) != nullptr) lengths = in[3]->integers();
    extra = read(4, s.extras() * s.units);
    c0 = read(5, s.batch * s.units);
  }
  Doubles r, h0, extra, c0;  // extra: peepholes of the gates i, o and f, or the bias of a GRU's h R
  Integers lengths;
};

// Rounds values to the type in which they are stored.
void round_to(DType dtype, Doubles &values) {
  if (dtype == DType::f64) return;
  values = Array::from_doubles({dtype, {static_cast<std::int64_t>(values.size())}}, values).doubles();
}

double product(const Doubles &r, std::int64_t row, const Doubles &h) {
  double sum = 0;
  for (std::size_t j = 0; j < h.size(); ++j) sum += r[index_of(row) * h.size() + j] * h[j];
  return sum;
}

// Each of the next three functions computes one step of one sample. On entry, `x` is the sample's row of x. On return,
// `x` holds the gates that are saved for backward. `h` and `c` are the states.
void lstm_step(const RecurrentSettings &s, const Operands &o, Doubles &x, Doubles &h, Doubles &c) {
  const std::int64_t n = s.units;
  for (std::int64_t j = 0; j < 4 * n; ++j) x[index_of(j)] += product(o.r, j, h);
  for (std::int64_t j = 0; j < n; ++j) {
    double &i = x[index_of(j)], &out = x[index_of(n + j)], &f = x[index_of(2 * n + j)], &g = x[index_of(3 * n + j)],
           &cell = c[index_of(j)];
    const auto peephole = [&](std::int64_t gate) { return o.extra[index_of(gate * n + j)]; };
    i = s.f.value(i + peephole(0) * cell);
    f = s.couples ? 1 - i : s.f.value(f + peephole(2) * cell);
    g = s.g.value(g);
    cell = f * cell + i * g;
    out = s.f.value(out + peephole(1) * cell);
    h[index_of(j)] = out * s.h.value(cell);
  }
}

void gru_step(const RecurrentSettings &s, const Operands &o, DType dtype, Doubles &x, Doubles &h) {
  const std::int64_t n = s.units;
  Doubles reset(index_of(n));
  for (std::int64_t j = 0; j < 2 * n; ++j) x[index_of(j)] = s.f.value(x[index_of(j)] + product(o.r, j, h));
  for (std::int64_t j = 0; j < n; ++j) reset[index_of(j)] = x[index_of(n + j)] * h[index_of(j)];
  round_to(dtype, reset);
  x.resize(index_of(s.saved() * n));
  for (std::int64_t j = 0; j < n; ++j) {
    const double bias = o.extra[index_of(j)];
    double &fresh = x[index_of(2 * n + j)];
    if (s.resets_product) {
      double &of_state = x[index_of(3 * n + j)] = product(o.r, 2 * n + j, h) + bias;
      fresh = s.g.value(fresh + x[index_of(n + j)] * of_state);
    } else {
      fresh = s.g.value(fresh + product(o.r, 2 * n + j, reset) + bias);
    }
  }
  for (std::int64_t j = 0; j < n; ++j) {
    const double z = x[index_of(j)];
    h[index_of(j)] = (1 - z) * x[index_of(2 * n + j)] + z * h[index_of(j)];
  }
}

void rnn_step(const RecurrentSettings &s, const Operands &o, Doubles &x, Doubles &h) {
  for (std::int64_t j = 0; j < s.units; ++j) x[index_of(j)] = s.f.value(x[index_of(j)] + product(o.r, j, h));
  h = x;
}

// row_of() returns row `row` of a matrix, and set_row() replaces it.
Doubles row_of(const Doubles &values, std::int64_t row, std::int64_t width) {
  const auto begin = values.begin() + row * width;
  return {begin, begin + width};
}
void set_row(Doubles &values, std::int64_t row, const Doubles &from) {
  std::ranges::copy(from, values.begin() + row * static_cast<std::int64_t>(from.size()));
}

// The saved gates and the states before and after one step of one sample, which the gradient of the step reads.
struct Saved {
  Doubles gates, h_before, h, c_before, c;
};

// lstm_step_gradient(), gru_step_gradient() and rnn_step_gradient() turn the gradients dh and dc of the states after a
// step into gradients of the states before the step. They return the gradients of the activations' arguments.
// step_back() later adds to dh the part that comes through the product of the state and the recurrent weights.
Doubles lstm_step_gradient(const RecurrentSettings &s, const Operands &o, const Saved &at, Doubles &dh, Doubles &dc) {
  const std::int64_t n = s.units;
  Doubles d(index_of(4 * n));
  for (std::int64_t j = 0; j < n; ++j) {
    const auto gate = [&](std::int64_t k) { return at.gates[index_of(k * n + j)]; };
    const auto peephole = [&](std::int64_t k) { return o.extra[index_of(k * n + j)]; };
    const double i = gate(0), out = gate(1), f = gate(2), g = gate(3), before = at.c_before[index_of(j)];
    const double upstream = dh[index_of(j)], held = s.h.value(at.c[index_of(j)]);
    double &dcell = dc[index_of(j)];
    const double dout = upstream * held * s.f.slope(out);
    dcell += upstream * out * s.h.slope(held) + dout * peephole(1);
    const double di = (dcell * g - (s.couples ? dcell * before : 0)) * s.f.slope(i);
    const double df = s.couples ? 0 : dcell * before * s.f.slope(f);
    d[index_of(j)] = di;
    d[index_of(n + j)] = dout;
    d[index_of(2 * n + j)] = df;
    d[index_of(3 * n + j)] = dcell * i * s.g.slope(g);
    dcell = dcell * f + di * peephole(0) + df * peephole(2);
    dh[index_of(j)] = 0;
  }
  return d;
}

// Adds p^T d to dh, where p is the part of r that begins at row `first` and has one row for each element of d.
void add_through(const Operands &o, std::int64_t first, const Doubles &d, Doubles &dh) {
  for (std::size_t j = 0; j < d.size(); ++j)
    for (std::size_t i = 0; i < dh.size(); ++i) dh[i] += o.r[(index_of(first) + j) * dh.size() + i] * d[j];
}

Doubles gru_step_gradient(const RecurrentSettings &s, const Operands &o, DType dtype, const Saved &at, Doubles &dh) {
  const std::int64_t n = s.units;
  Doubles d(index_of(3 * n)), fresh(index_of(n)), through(index_of(n), 0.0);
  for (std::int64_t j = 0; j < n; ++j) {
    const double z = at.gates[index_of(j)], value = at.gates[index_of(2 * n + j)], upstream = dh[index_of(j)];
    fresh[index_of(j)] = upstream * (1 - z) * s.g.slope(value);
    d[index_of(j)] = upstream * (at.h_before[index_of(j)] - value) * s.f.slope(z);
    dh[index_of(j)] = upstream * z;
  }
  if (!s.resets_product) {
    round_to(dtype, fresh);
    add_through(o, 2 * n, fresh, through);
  }
  for (std::int64_t j = 0; j < n; ++j) {
    const double reset = at.gates[index_of(n + j)];
    double to_reset = through[index_of(j)] * at.h_before[index_of(j)];
    if (s.resets_product) to_reset = fresh[index_of(j)] * at.gates[index_of(3 * n + j)];
    d[index_of(n + j)] = to_reset * s.f.slope(reset);
    d[index_of(2 * n + j)] = fresh[index_of(j)];
    dh[index_of(j)] += through[index_of(j)] * reset;
  }
  return d;
}

Doubles rnn_step_gradient(const RecurrentSettings &s, const Saved &at, Doubles &dh) {
  Doubles d(dh.size());
  for (std::size_t j = 0; j < d.size(); ++j) d[j] = dh[j] * s.f.slope(at.h[j]);
  std::ranges::fill(dh, 0.0);
  return d;
}

// The gradients of one sample while its steps are visited from the last to the first.
struct SampleGradient {
  Doubles dh, dc;     // of the states
  Doubles d, d_of_r;  // of the products x W and h R of a step; the two differ only if a gate resets h R
};

void step_back(const RecurrentSettings &s, const Operands &o, DType dtype, const Saved &at, SampleGradient &g) {
  if (s.cell == Cell::lstm) g.d = lstm_step_gradient(s, o, at, g.dh, g.dc);
  if (s.cell == Cell::gru) g.d = gru_step_gradient(s, o, dtype, at, g.dh);
  if (s.cell == Cell::rnn) g.d = rnn_step_gradient(s, at, g.dh);
  g.d_of_r = g.d;
  if (s.resets_product)
    for (std::int64_t j = 2 * s.units; j < 3 * s.units; ++j) g.d_of_r[index_of(j)] *= at.gates[index_of(j - s.units)];
  round_to(dtype, g.d);
  round_to(dtype, g.d_of_r);
  Doubles through = g.d_of_r;
  if (s.cell == Cell::gru && !s.resets_product) through.resize(index_of(2 * s.units));  // dh has the new gate's part
  add_through(o, 0, through, g.dh);
}

}  // namespace

const RecurrentActivation *find_recurrent_activation(std::string_view name) {
  const auto *found = std::ranges::find(kRecurrentActivations, name, &RecurrentActivation::name);
  return found == std::end(kRecurrentActivations) ? nullptr : found;
}

LimitedActivation::LimitedActivation(const Node &node, const std::string &key, const char *fallback, double clip,
                                     DType dtype)
    : row_(find_recurrent_activation(node.attributes.text(key, fallback))), clip_(clip) {
  require(row_ != nullptr, Code::unsupported, node.subject(), "{} has no activation {}", node.op,
          printable(node.attributes.text(key, fallback)));
  alpha_ = node.attributes.real(key + "_alpha", 0);
  beta_ = node.attributes.real(key + "_beta", 0);
  margin_ = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : dtype == DType::f32 ? 0x1p-20 : 0;
}

double LimitedActivation::value(double x) const { return row_->value(std::clamp(x, -clip_, clip_), alpha_, beta_); }

double LimitedActivation::slope(double y) const {
  const auto is = [&](double limit) { return std::abs(y - limit) <= margin_ * std::abs(limit); };
  return clip_ < INFINITY && (is(value(clip_)) || is(value(-clip_))) ? 0 : row_->slope(y, alpha_, beta_);
}

RecurrentSettings::RecurrentSettings(const Node &node, const Type &r, const Shape &per_step)
    : cell(cell_of(node.op)),
      gates(cell == Cell::lstm  ? 4
            : cell == Cell::gru ? 3
                                : 1),
      units(r.shape.at(1)),
      steps(per_step.at(0)),
      batch(per_step.at(1)),
      reverse(node.attributes.integer("reverse", 0) != 0),
      resets_product(cell == Cell::gru && node.attributes.integer("linear_before_reset", 0) != 0),
      couples(node.attributes.integer("input_forget", 0) != 0),
      f(node, "f", cell == Cell::rnn ? "Tanh" : "Sigmoid", node.attributes.real("clip", INFINITY), r.dtype),
      g(node, "g", "Tanh", node.attributes.real("clip", INFINITY), r.dtype),
      h(node, "h", "Tanh", INFINITY, r.dtype) {}

std::int64_t RecurrentSettings::saved() const { return cell == Cell::rnn ? 0 : resets_product ? 4 : gates; }

Arrays evaluate_recurrent(const Node &node, Inputs in, Types out) {
  const RecurrentSettings s(node, in[1]->type(), in[0]->shape());
  const Operands o(s, in);
  const Doubles x = in[0]->doubles();
  const std::int64_t rows = s.steps * s.batch, n = s.units;
  Doubles y(index_of(rows * n)), gates(index_of(rows * s.saved() * n)), cells(index_of(rows * n));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    Doubles h = row_of(o.h0, b, n), c = row_of(o.c0, b, n);
    for (std::int64_t k = 0; k < s.steps; ++k) {
      const std::int64_t t = s.time(k), row = t * s.batch + b;
      if (t < o.lengths[index_of(b)]) {
        Doubles at = row_of(x, row, s.gates * n);
        if (s.cell == Cell::lstm) lstm_step(s, o, at, h, c);
        if (s.cell == Cell::gru) gru_step(s, o, out[0].dtype, at, h);
        if (s.cell == Cell::rnn) rnn_step(s, o, at, h);
        round_to(out[0].dtype, h);
        if (s.saved() > 0) set_row(gates, row, at);
      }
      set_row(y, row, h);
      set_row(cells, row, c);
    }
  }
  Arrays results = {array_of(out[0], y)};
  if (s.saved() > 0) results.push_back(array_of(out[1], gates));
  if (s.cell == Cell::lstm) results.push_back(array_of(out[2], cells));
  return results;
}

Arrays evaluate_recurrent_gradient(const Node &node, Inputs in, Types out) {
  const RecurrentSettings s(node, in[1]->type(), out[0].shape);
  const Operands o(s, in);
  const std::int64_t n = s.units, rows = s.steps * s.batch, width = s.gates * n;
  const auto read = [&](std::size_t i, std::int64_t count) {
    return optional_input(in, i) != nullptr ? in[i]->doubles() : Doubles(index_of(count), 0.0);
  };
  const Doubles dy = read(0, rows * n), y = read(kRecurrentStates, rows * n), gates = read(kRecurrentGates, 0),
                cells = read(kRecurrentCells, rows * n), dcells = read(kCellGradients, rows * n);
  Doubles dx(index_of(rows * width), 0.0), of_r = dx, dh0(o.h0.size()), dc0(o.c0.size());
  for (std::int64_t b = 0; b < s.batch; ++b) {
    SampleGradient g{Doubles(index_of(n), 0.0), Doubles(index_of(n), 0.0), {}, {}};
    for (std::int64_t k = s.steps; k-- > 0;) {
      const std::int64_t t = s.time(k), row = t * s.batch + b, before = k > 0 ? s.time(k - 1) * s.batch + b : 0;
      for (std::int64_t j = 0; j < n; ++j) {
        g.dh[index_of(j)] += dy[index_of(row * n + j)];
        g.dc[index_of(j)] += dcells[index_of(row * n + j)];
      }
      if (t >= o.lengths[index_of(b)]) continue;
      const Saved at{row_of(gates, s.saved() > 0 ? row : 0, s.saved() * n),
                     k > 0 ? row_of(y, before, n) : row_of(o.h0, b, n), row_of(y, row, n),
                     k > 0 ? row_of(cells, before, n) : row_of(o.c0, b, n), row_of(cells, row, n)};
      step_back(s, o, out[0].dtype, at, g);
      set_row(dx, row, g.d);
      set_row(of_r, row, g.d_of_r);
    }
    set_row(dh0, b, g.dh);
    set_row(dc0, b, g.dc);
  }
  Arrays results = {array_of(out[0], dx), array_of(out[1], dh0)};
  if (s.cell == Cell::lstm) results.push_back(array_of(out[2], dc0));
  if (s.resets_product) results.push_back(array_of(out[2], of_r));
  return results;
}

}  // namespace protrain::ops
