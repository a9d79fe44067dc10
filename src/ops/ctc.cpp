// Connectionist temporal classification (Graves et al., 2006) of N samples with T times, C classes and rows of S
// labels:
//
//   CtcLoss(logits (N, T, C), labels (N, S)[, lengths (N)]){blank, ignore_index} -> loss
//
// Softmax of the logits gives the probability of each class at each time. The loss of a sample is -log of the
// probability of all paths that spell its labels (arith/ctc.h), divided by the number of its labels, if it has any. If
// no path spells them, the sample has the loss 0 and no gradient. The result is the mean over samples. Labels that are
// `ignore_index` are left out, wherever they stand. Only the first `lengths` of a sample's times count, or all T if
// `lengths` is absent.
#include <cmath>

#include "arith/ctc.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

void require_ctc(const NodeTypes &types, std::size_t first) {
  const Type &logits = types.input(first), &labels = types.input(first + 1);
  require(logits.shape.size() == 3 && is_float(logits.dtype) && logits.shape[2] > 1, Code::shape, types.subject(),
          "logits of {} are not (N, T, C) with a class beside the blank", to_text(logits));
  const auto is_index = [](const Type &type) { return type.dtype == DType::i64 || type.dtype == DType::i32; };
  require(is_index(labels) && labels.shape.size() == 2 && labels.shape[0] == logits.shape[0], Code::shape,
          types.subject(), "labels of {} for logits of {}; they are (N, S), int64 or int32", to_text(labels),
          to_text(logits));
  if (types.has(first + 2))
    require(is_index(types.input(first + 2)) && types.input(first + 2).shape == Shape{logits.shape[0]}, Code::shape,
            types.subject(), "lengths of {} for {} samples; they are (N), int64 or int32",
            to_text(types.input(first + 2)), logits.shape[0]);
  const std::int64_t blank = types.node.attributes.integer("blank", 0);
  require(blank >= 0 && blank < logits.shape[2], Code::arg, types.subject(), "the blank is class {} of {}", blank,
          logits.shape[2]);
}

std::vector<Type> infer_ctc(const NodeTypes &types) {
  require_ctc(types, 0);
  return {{sum_dtype(types.input(0).dtype), {}}};
}

// CtcLossGrad(dloss, logits, labels[, lengths]) -> dlogits
std::vector<Type> infer_ctc_gradient(const NodeTypes &types) {
  require_ctc(types, 1);
  require(types.input(0) == Type({sum_dtype(types.input(1).dtype), {}}), Code::type, types.subject(), "dloss is {}",
          to_text(types.input(0)));
  return {types.input(1)};
}

// The operands that CtcLoss and CtcLossGrad have in common. `in` holds logits, labels and, if they are given, lengths.
struct Speech {
  Speech(const Node &node, Inputs in)
      : samples(static_cast<std::size_t>(in[0]->shape()[0])),
        times(static_cast<std::size_t>(in[0]->shape()[1])),
        classes(static_cast<std::size_t>(in[0]->shape()[2])),
        blank(node.attributes.integer("blank", 0)),
        lengths(samples, times),
        logs(in[0]->doubles()) {
    to_log_probabilities();
    const std::vector<std::int64_t> all = in[1]->integers();
    const auto width = static_cast<std::size_t>(in[1]->shape()[1]);
    for (std::size_t n = 0; n < samples; ++n) {
      labels.emplace_back();
      for (std::size_t i = n * width; i < (n + 1) * width; ++i)
        if (!node.attributes.has("ignore_index") || all[i] != node.attributes.integer("ignore_index", 0))
          labels[n].push_back(checked(node, all[i], i));
    }
    const Array *given = optional_input(in, 2);
    for (std::size_t n = 0; given != nullptr && n < samples; ++n) {
      const std::int64_t length = given->integers()[n];
      require(length >= 0 && length <= in[0]->shape()[1], Code::arg, node.subject(),
              "length {} of sample {} is outside 0..{}", length, n, times);
      lengths[n] = static_cast<std::size_t>(length);
    }
  }

  std::int64_t checked(const Node &node, std::int64_t label, std::size_t place) const {
    require(label >= 0 && label < static_cast<std::int64_t>(classes), Code::arg, node.subject(),
            "label {} of row {} is outside 0..{}", label, place, classes - 1);
    require(label != blank, Code::arg, node.subject(), "label {} of row {} is the blank", label, place);
    return label;
  }

  void to_log_probabilities() {
    for (std::size_t row = 0; row < samples * times; ++row) {
      double *at = logs.data() + row * classes;
      const double largest = *std::max_element(at, at + classes);
      double sum = 0;
      for (std::size_t i = 0; i < classes; ++i) sum += std::exp(at[i] - largest);
      for (std::size_t i = 0; i < classes; ++i) at[i] -= largest + std::log(sum);
    }
  }

  arith::CtcStates states(std::size_t n) const {
    return {labels[n].data(), static_cast<std::int64_t>(labels[n].size()), blank};
  }
  const double *log_row(std::size_t n, std::size_t t) const { return logs.data() + (n * times + t) * classes; }
  // Returns the factor of -log(p) in the loss, where p is the probability of sample n's labels.
  double share(std::size_t n) const {
    return 1 / (static_cast<double>(samples) * std::max<double>(1, static_cast<double>(labels[n].size())));
  }

  std::size_t samples, times, classes;
  std::int64_t blank;
  std::vector<std::size_t> lengths;
  std::vector<std::vector<std::int64_t>> labels;
  std::vector<double> logs;  // log probabilities
};

// Logarithms of probabilities of one sample. For each time and state, `reached` (CTC's forward variables) holds the
// probability of all partial paths that are in this state at this time. `all` is the probability of all paths that
// spell the labels.
struct Paths {
  std::vector<std::vector<double>> reached;  // [time][state]
  double all;
};

Paths paths_of(const Speech &speech, std::size_t n) {
  const arith::CtcStates states = speech.states(n);
  Paths paths{.reached = {}, .all = states.labels_count == 0 ? 0 : -HUGE_VAL};
  for (std::size_t t = 0; t < speech.lengths[n]; ++t) {
    std::vector<double> now;
    for (std::int64_t s = 0; s < states.count(); ++s)
      now.push_back((t == 0 ? states.begin(s) : states.arriving(paths.reached.back().data(), s)) +
                    speech.log_row(n, t)[states.class_of(s)]);
    paths.reached.push_back(std::move(now));
  }
  if (!paths.reached.empty()) paths.all = states.total(paths.reached.back().data());
  return paths;
}

std::vector<Array> evaluate_ctc(const Node &node, Inputs in, Types out) {
  const Speech speech(node, in);
  double loss = 0;
  for (std::size_t n = 0; n < speech.samples; ++n)
    if (const double all = paths_of(speech, n).all; all != -HUGE_VAL) loss -= speech.share(n) * all;
  return {array_of(out[0], std::vector<double>{loss})};
}

// Adds a sample's gradient to dx. For each class and time, the gradient is dloss * share * (p - q), where p is the
// probability of the class at that time, and q is this probability under the condition that the path spells the labels.
void add_gradient(const Speech &speech, std::size_t n, double dloss, std::vector<double> &dx) {
  const arith::CtcStates states = speech.states(n);
  const Paths paths = paths_of(speech, n);
  if (paths.all == -HUGE_VAL) return;
  const double factor = dloss * speech.share(n);
  std::vector<double> after(static_cast<std::size_t>(states.count()));
  for (std::size_t t = speech.lengths[n]; t-- > 0;) {
    const double *logs = speech.log_row(n, t);
    double *to = dx.data() + (n * speech.times + t) * speech.classes;
    for (std::size_t i = 0; i < speech.classes; ++i) to[i] += factor * std::exp(logs[i]);
    std::vector<double> before(after.size());
    for (std::int64_t s = 0; s < states.count(); ++s) {
      const auto at = static_cast<std::size_t>(s);
      const double rest = t + 1 == speech.lengths[n] ? states.end(s) : states.leaving(after.data(), s);
      to[states.class_of(s)] -= factor * std::exp(paths.reached[t][at] + rest - paths.all);
      before[at] = rest + logs[states.class_of(s)];
    }
    after = before;
  }
}

std::vector<Array> evaluate_ctc_gradient(const Node &node, Inputs in, Types out) {
  const Speech speech(node, in.subspan(1));
  std::vector<double> dx(speech.logs.size(), 0.0);
  for (std::size_t n = 0; n < speech.samples; ++n) add_gradient(speech, n, in[0]->doubles()[0], dx);
  return {array_of(out[0], dx)};
}

void differentiate_ctc(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  std::vector<ValueId> inputs = node.inputs;
  inputs.insert(inputs.begin(), builder.gradient_of(node.outputs[0]));
  builder.contribute(node.inputs[0], builder.emit("CtcLossGrad", inputs, node.attributes));
}

// The sizes that decide the cost: the rows of logits of all samples and times, and the states of one sample.
struct Extent {
  Extent(const NodeTypes &types, bool gradient)
      : logits(types.input(gradient ? 1 : 0).shape), labels(types.input(gradient ? 2 : 1).shape) {}

  double rows() const { return static_cast<double>(logits[0]) * static_cast<double>(logits[1]); }
  double states() const { return 2 * static_cast<double>(labels[1]) + 1; }

  const Shape &logits, &labels;
};

// Returns the flops of `directions` passes over all times: 1 for forwards only, 2 for forwards and backwards. A
// log_add() counts as some twenty multiplications.
double flops_along(const Extent &extent, double directions) {
  return extent.rows() * (4 * static_cast<double>(extent.logits[2]) + directions * 60 * extent.states());
}
double ctc_flops(const NodeTypes &types, Types) { return flops_along({types, false}, 1); }
double ctc_gradient_flops(const NodeTypes &types, Types) { return flops_along({types, true}, 2); }

// Returns the bytes of scratch (CtcScratch in backend/common/ctc_shape.h). It holds rows with one number for each
// state: two rows for each sample and, for the gradient, another row for each sample and time.
std::uint64_t scratch_of(const Extent &extent, bool gradient) {
  const auto samples = static_cast<double>(extent.logits[0]), labels = static_cast<double>(extent.labels[1]);
  const double states = (gradient ? extent.rows() + 2 * samples : 2 * samples) * extent.states();
  return static_cast<std::uint64_t>(8 * (states + extent.rows() + samples * (2 * labels + 4)));
}
std::uint64_t ctc_scratch(const NodeTypes &types, bool) { return scratch_of({types, false}, false); }
std::uint64_t ctc_gradient_scratch(const NodeTypes &types, bool) { return scratch_of({types, true}, true); }

}  // namespace

Family ctc_family() {
  return {{.name = "CtcLoss",
           .infer = infer_ctc,
           .evaluate = evaluate_ctc,
           .gradient = differentiate_ctc,
           .flops = ctc_flops,
           .optional = {2},
           .wide = {1, 2},
           .checks_values = true,
           .scratch = ctc_scratch},
          {.name = "CtcLossGrad",
           .infer = infer_ctc_gradient,
           .evaluate = evaluate_ctc_gradient,
           .flops = ctc_gradient_flops,
           .optional = {3},
           .scratch = ctc_gradient_scratch}};
}

}  // namespace protrain::ops
