// The sizes, the attributes and the scratch of CtcLoss and of its gradient.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arith/ctc.h"
#include "backend/request.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend {

// The numbers of a sample that its loss and its gradient need.
struct CtcSample {
  std::int64_t length, labels_count;
  double loss;   // 0 if no path spells the labels
  double share;  // factor of the loss in the mean: 1 / (N max(1, labels_count)); 0 if no path spells the labels
};

// The arrays in scratch. `states` has kept() rows for each sample, and a row has one number for each CTC state. The
// first two rows hold the two time steps that were computed last. For the gradient, a row for each time step follows.
struct CtcScratch {
  CtcSample *samples;    // (N)
  double *lse;           // (N, T), log(sum(exp(logits)))
  double *states;        // (N, kept, 2 S + 1)
  std::int64_t *labels;  // (N, S): the labels without the ignored ones
};

struct CtcShape {
  explicit CtcShape(const KernelRequest &request)
      : gradient(request.node.op == "CtcLossGrad"),
        logits(gradient ? 1 : 0),
        samples(request.inputs.at(logits).shape.at(0)),
        times(request.inputs[logits].shape.at(1)),
        classes(request.inputs[logits].shape.at(2)),
        width(request.inputs.at(logits + 1).shape.at(1)),
        blank(request.node.attributes.integer("blank", 0)),
        ignored(request.node.attributes.integer("ignore_index", 0)),
        ignores(request.node.attributes.has("ignore_index")),
        wide_labels(is_wide(request, logits + 1)),
        wide_lengths(has_input(request, logits + 2) && is_wide(request, logits + 2)) {}

  std::int64_t rows() const { return samples * times; }
  std::uint64_t scratch_bytes() const {
    const auto elements = [](std::int64_t a, std::int64_t b) {
      return checked_multiply(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b));
    };
    const std::uint64_t of_sample = static_cast<std::uint64_t>(times + width) + sizeof(CtcSample) / sizeof(double);
    const std::uint64_t all = checked_add(elements(kept(), 2 * width + 1), of_sample);
    return checked_multiply(checked_multiply(all, static_cast<std::uint64_t>(samples)), sizeof(double));
  }
  CtcScratch from(void *scratch) const {
    auto *list = static_cast<CtcSample *>(scratch);
    auto *lse = reinterpret_cast<double *>(list + samples);
    double *states = lse + rows();
    return {list, lse, states, reinterpret_cast<std::int64_t *>(states + samples * kept() * (2 * width + 1))};
  }

  PROTRAIN_HD std::int64_t kept() const { return gradient ? times + 2 : 2; }
  // turn() and row() return a row of a sample's states. turn() returns one of the first two rows: row 0 for even times,
  // row 1 for odd times. row() returns the row that the gradient keeps for time t.
  PROTRAIN_HD double *turn(const CtcScratch &scratch, std::int64_t n, std::int64_t t) const {
    return scratch.states + (n * kept() + t % 2) * (2 * width + 1);
  }
  PROTRAIN_HD double *row(const CtcScratch &scratch, std::int64_t n, std::int64_t t) const {
    return scratch.states + (n * kept() + 2 + t) * (2 * width + 1);
  }
  PROTRAIN_HD arith::CtcStates states(const CtcScratch &scratch, std::int64_t n) const {
    return {scratch.labels + n * width, scratch.samples[n].labels_count, blank};
  }

  PROTRAIN_HD static std::int64_t integer(const void *data, bool wide, std::int64_t i) {
    return wide ? static_cast<const std::int64_t *>(data)[i] : static_cast<const std::int32_t *>(data)[i];
  }
  // Copies the labels of sample n, without the ignored ones, to scratch, and returns how many it copied. If a label is
  // the blank or no class, stops there and returns -1 - i, where i is this label's index over all samples.
  PROTRAIN_HD std::int64_t take_labels(const void *labels, std::int64_t n, const CtcScratch &scratch) const {
    std::int64_t count = 0;
    for (std::int64_t i = n * width; i < (n + 1) * width; ++i) {
      const std::int64_t label = integer(labels, wide_labels, i);
      if (ignores && label == ignored) continue;
      if (label < 0 || label >= classes || label == blank) return -1 - i;
      scratch.labels[n * width + count++] = label;
    }
    return count;
  }
  // Sets the members `loss` and `share` of a sample. log_p is the logarithm of the summed probability of all paths that
  // spell the sample's labels. It is -infinity if there is no such path.
  PROTRAIN_HD void settle(CtcSample &sample, double log_p) const {
    const bool spelt = log_p != -INFINITY;
    const auto labels = static_cast<double>(sample.labels_count < 1 ? 1 : sample.labels_count);
    sample.loss = spelt ? -log_p : 0;
    sample.share = spelt ? 1 / (static_cast<double>(samples) * labels) : 0;
  }

  bool gradient;
  std::size_t logits;  // index of the input `logits`; labels and lengths follow
  std::int64_t samples, times, classes, width;
  std::int64_t blank, ignored;
  bool ignores, wide_labels, wide_lengths;

 private:
  static bool is_wide(const KernelRequest &request, std::size_t i) {
    const DType dtype = request.inputs[i].dtype;
    require(dtype == DType::i64 || dtype == DType::i32, Code::unsupported, subject(request),
            "labels and lengths are int64 or int32, these are {}", name_of(dtype));
    return dtype == DType::i64;
  }
};

}  // namespace protrain::backend
