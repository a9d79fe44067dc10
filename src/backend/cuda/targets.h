// What the two losses share: labels that are checked as they are read, and the arithmetic of one row of logits by the
// threads of a block.
#pragma once

#include "arith/math.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

// How a loss reads its labels: type, number of classes, what to ignore.
struct Targets {
  static constexpr std::int64_t kIgnored = -1, kWrong = -2;

  Targets(const KernelRequest &request, std::size_t labels, std::int64_t classes, Site &site)
      : wide(request.inputs.at(labels).dtype == DType::i64),
        rows(element_count(request.inputs[labels].shape)),
        classes(classes),
        ignores(request.node.attributes.has("ignore_index")),
        ignored(request.node.attributes.integer("ignore_index", 0)),
        note(site.faults.source(FaultKind::label, subject(request), classes)) {
    require(wide || request.inputs[labels].dtype == DType::i32, Code::unsupported, subject(request),
            "labels on cuda are int64 or int32, these are {}", name_of(request.inputs[labels].dtype));
  }

  Targets from(const void *labels) const {
    Targets bound = *this;
    bound.at = labels;
    return bound;
  }

  // The class of a row, kIgnored, or kWrong where the label is neither.
  __device__ std::int64_t operator[](std::int64_t row) const {
    const std::int64_t label =
        wide ? static_cast<const std::int64_t *>(at)[row] : static_cast<const std::int32_t *>(at)[row];
    if (ignores && label == ignored) return kIgnored;
    if (label >= 0 && label < classes) return label;
    cuda::note(note, label, row);
    return kWrong;
  }

  const void *at = nullptr;
  bool wide;
  std::int64_t rows, classes;
  bool ignores;
  std::int64_t ignored;
  Note note;
};

enum class Reduction : std::uint8_t { mean, sum, none };
inline Reduction reduction_of(const KernelRequest &request) {
  const std::string name = request.node.attributes.text("reduction", "mean");
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  require(name == "none", Code::unsupported, subject(request), "reduction \"{}\" is none of mean, sum, none", name);
  return Reduction::none;
}

// log(sum(exp(x))) of `count` logits; each thread sums its share in double.
template <typename T>
__device__ double log_sum_exp(const T *x, std::int64_t count) {
  const auto largest = fold_terms<Larger, float>(count, [&](std::int64_t i) { return widened(x[i]); });
  const auto sum = fold_terms<Plus, double>(
      count, [&](std::int64_t i) { return static_cast<double>(arith::exp(widened(x[i]) - largest)); });
  return static_cast<double>(largest) + ::log(sum);
}

// counted = rows that are not ignored; one block.
static __global__ void count_targets_kernel(Targets targets, double *counted) {
  const auto count = fold_terms<Plus, std::int64_t>(
      targets.rows, [&](std::int64_t i) { return targets[i] != Targets::kIgnored ? 1 : 0; });
  if (threadIdx.x == 0) *counted = static_cast<double>(count);
}

// loss = the sum of `rows` losses, over the number of them that count where `mean`; one block.
static __global__ void total_loss_kernel(const double *losses, std::int64_t rows, const double *counted, bool mean,
                                         float *loss) {
  const auto total = fold_terms<Plus, double>(rows, [&](std::int64_t i) { return losses[i]; });
  if (threadIdx.x == 0) *loss = static_cast<float>(mean ? total / *counted : total);
}

}  // namespace protrain::backend::cuda
