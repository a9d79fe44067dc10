// CtcLoss, and its gradient. Members share the rows of logits, then the samples, then the rows again. One member adds
// up the losses of the samples, from the first to the last.
#include <algorithm>

#include "backend/common/ctc_shape.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/log_sum_exp.h"

namespace protrain::backend::cpu {

namespace {
template <typename T>
struct CtcLoops {
  PROTRAIN_CLONES static void slopes(const T *x, std::int64_t count, float lse, float factor, T *to) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = narrowed<T>(factor * arith::exp(widened(x[i]) - lse));
  }
};

template <typename T>
class CtcLoss : public CpuKernel {
 public:
  explicit CtcLoss(const KernelRequest &request) : shape_(request), subject_(subject(request)) {
    if (shape_.gradient) require_dtype(request, request.inputs[0], DType::f32);
    scratch_bytes = shape_.scratch_bytes();
  }

  void run(Member &member, const Launch &launch) override {
    const CtcScratch scratch = shape_.from(launch.scratch);
    const T *logits = input<T>(launch, shape_.logits);
    const Range rows = share(shape_.rows(), 1, member), samples = share(shape_.samples, 1, member);
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
      scratch.lse[i] = log_sum_exp(logits + i * shape_.classes, shape_.classes);
    member.barrier();
    for (std::int64_t n = samples.begin; n < samples.end; ++n) {
      open(launch, scratch, n);
      const double log_p = forwards(logits, scratch, n);
      shape_.settle(scratch.samples[n], log_p);
      if (shape_.gradient && scratch.samples[n].share != 0) backwards(logits, scratch, n, log_p);
    }
    member.barrier();
    if (shape_.gradient)
      for (std::int64_t i = rows.begin; i < rows.end; ++i) differentiate(launch, scratch, i);
    else if (member.index == 0)
      *output<float>(launch, 0) = total(scratch);
  }

 private:
  // Reads the labels and the length of a sample. Fails with Code::arg if a label or the length is not legal.
  void open(const Launch &launch, const CtcScratch &scratch, std::int64_t n) const {
    const void *labels = launch.inputs[shape_.logits + 1];
    const auto *lengths = optional_input<std::byte>(launch, shape_.logits + 2);
    const std::int64_t count = shape_.take_labels(labels, n, scratch);
    if (count < 0) {
      const std::int64_t place = -1 - count, label = shape_.integer(labels, shape_.wide_labels, place);
      require(label == shape_.blank, Code::arg, subject_, "label {} of row {} is outside 0..{}", label, place,
              shape_.classes - 1);
      fail(Code::arg, subject_, "label {} of row {} is the blank", label, place);
    }
    const std::int64_t length = lengths == nullptr ? shape_.times : shape_.integer(lengths, shape_.wide_lengths, n);
    require(length >= 0 && length <= shape_.times, Code::arg, subject_, "length {} of sample {} is outside 0..{}",
            length, n, shape_.times);
    scratch.samples[n] = {length, count, 0, 0};
  }

  // Runs the forward recursion of CTC. For each time and state it computes the log of the summed probability of the
  // paths that are in this state at this time. Returns the log of the summed probability of all complete paths. For the
  // gradient, the values of all times are kept, because backwards() reads them. For the loss alone, only those of two
  // times are kept.
  double forwards(const T *logits, const CtcScratch &scratch, std::int64_t n) const {
    const arith::CtcStates states = shape_.states(scratch, n);
    const double *before = nullptr;
    for (std::int64_t t = 0; t < scratch.samples[n].length; ++t) {
      double *now = shape_.gradient ? shape_.row(scratch, n, t) : shape_.turn(scratch, n, t);
      const std::int64_t i = n * shape_.times + t;
      for (std::int64_t s = 0; s < states.count(); ++s)
        now[s] =
            (t == 0 ? states.begin(s) : states.arriving(before, s)) + log_p(logits, scratch, i, states.class_of(s));
      before = now;
    }
    if (before != nullptr) return states.total(before);
    return states.labels_count == 0 ? 0 : -INFINITY;
  }

  // Runs the backward recursion of CTC. Replaces the values that forwards() kept for each time by the probabilities of
  // the states at that time, given the labels.
  void backwards(const T *logits, const CtcScratch &scratch, std::int64_t n, double all) const {
    const arith::CtcStates states = shape_.states(scratch, n);
    const std::int64_t length = scratch.samples[n].length;
    for (std::int64_t t = length - 1; t >= 0; --t) {
      double *row = shape_.row(scratch, n, t), *now = shape_.turn(scratch, n, t);
      const double *after = shape_.turn(scratch, n, t + 1);
      const std::int64_t i = n * shape_.times + t;
      for (std::int64_t s = 0; s < states.count(); ++s) {
        const double rest = t + 1 == length ? states.end(s) : states.leaving(after, s);
        row[s] = std::exp(row[s] + rest - all);
        now[s] = rest + log_p(logits, scratch, i, states.class_of(s));
      }
      gather(states, row);
    }
  }

  // Adds up the probabilities of all states of the same class, and stores the sum in the first of these states. Later
  // states of a label become -1, so that differentiate() skips them. State 0 gets the sum of all states of the blank.
  static void gather(const arith::CtcStates &states, double *row) {
    for (std::int64_t s = 2; s < states.count(); s += 2) row[0] += row[s];
    for (std::int64_t s = states.count() - 2; s > 0; s -= 2)
      for (std::int64_t first = 1; first < s; first += 2)
        if (states.class_of(first) == states.class_of(s)) {
          row[first] += row[s];
          row[s] = -1;
          break;
        }
  }

  void differentiate(const Launch &launch, const CtcScratch &scratch, std::int64_t i) const {
    const std::int64_t n = i / shape_.times, t = i % shape_.times, classes = shape_.classes;
    const CtcSample &sample = scratch.samples[n];
    const T *x = input<T>(launch, shape_.logits) + i * classes;
    T *to = output<T>(launch, 0) + i * classes;
    if (t >= sample.length || sample.share == 0) {
      std::fill_n(to, classes, T{});
      return;
    }
    const double factor = static_cast<double>(*input<float>(launch, 0)) * sample.share;
    CtcLoops<T>::slopes(x, classes, static_cast<float>(scratch.lse[i]), static_cast<float>(factor), to);
    const arith::CtcStates states = shape_.states(scratch, n);
    const double *row = shape_.row(scratch, n, t);
    for (std::int64_t s = 0; s < states.count(); s += s == 0 ? 1 : 2) {
      if (row[s] < 0) continue;
      const std::int64_t at = states.class_of(s);
      const double p = std::exp(log_p(input<T>(launch, shape_.logits), scratch, i, at));
      to[at] = narrowed<T>(static_cast<float>(factor * (p - row[s])));
    }
  }

  double log_p(const T *logits, const CtcScratch &scratch, std::int64_t i, std::int64_t of) const {
    return static_cast<double>(widened(logits[i * shape_.classes + of])) - scratch.lse[i];
  }

  float total(const CtcScratch &scratch) const {
    double sum = 0;
    for (std::int64_t n = 0; n < shape_.samples; ++n) sum += scratch.samples[n].loss * scratch.samples[n].share;
    return static_cast<float>(sum);
  }

  const CtcShape shape_;
  const std::string subject_;
};
}  // namespace

KernelPtr make_ctc_loss(const KernelRequest &request, int) {
  return make_by_float<CtcLoss>(request, request.inputs.at(request.node.op == "CtcLossGrad" ? 1 : 0));
}

}  // namespace protrain::backend::cpu
