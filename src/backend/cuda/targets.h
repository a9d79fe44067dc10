// The targets of a loss, checked as they are read, and the loss of one row of logits, computed by a block. CrossEntropy
// and LinearCrossEntropy use both.
#pragma once

#include "arith/cross_entropy.h"
#include "backend/common/reduction.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

// The targets of a loss: labels, or for distillation a teacher's logits (teacher.h). Labels may have weights, and one
// label may be ignored. With a teacher every row weighs 1. `terms` says how a row's loss is computed from its label.
struct Targets {
  static constexpr std::int64_t kIgnored = -1, kWrong = -2;

  // `labels` and `weights` are indices among the inputs. Without weights every row weighs 1.
  Targets(const KernelRequest &request, std::size_t labels, std::size_t weights, std::int64_t classes,
          DeviceState &device)
      : labels(labels),
        weights(weights),
        wide(request.inputs.at(labels).dtype == DType::i64),
        taught(has_teacher(request, labels)),
        rows(request.inputs[labels].shape.at(0)),
        classes(classes),
        ignores(request.node.attributes.has("ignore_index")),
        ignored(request.node.attributes.integer("ignore_index", 0)),
        terms(row_loss_of(request)),
        note(device.faults.source(FaultKind::label, subject(request), classes)) {
    if (taught) require_dtype(request, request.inputs[labels], DType::f32);
    require(taught || wide || request.inputs[labels].dtype == DType::i32, Code::unsupported, subject(request),
            "labels on cuda are int64 or int32, these are {}", name_of(request.inputs[labels].dtype));
    if (has_input(request, weights)) require_dtype(request, request.inputs[weights], DType::f32);
  }

  Targets from(const Launch &launch) const {
    Targets bound = *this;
    bound.at = launch.inputs[labels];
    bound.weight_at = optional_input<float>(launch, weights);
    return bound;
  }

  // Returns the class of a row. Returns kIgnored if the row's label is the ignored one or its weight is 0. If the label
  // is neither a class nor the ignored one, notes a fault and returns kWrong.
  __device__ std::int64_t operator[](std::int64_t row) const {
    const std::int64_t label =
        wide ? static_cast<const std::int64_t *>(at)[row] : static_cast<const std::int32_t *>(at)[row];
    if (ignores && label == ignored) return kIgnored;
    if (label >= 0 && label < classes) return weight(row) != 0 ? label : kIgnored;
    cuda::note(note, label, row);
    return kWrong;
  }

  // Returns the weight of a row, by which its loss is multiplied. A row whose label is ignored has no loss, whatever
  // its weight is.
  __device__ float weight(std::int64_t row) const { return weight_at != nullptr ? weight_at[row] : 1.0f; }

  const void *at = nullptr;
  const float *weight_at = nullptr;
  std::size_t labels, weights;
  bool wide, taught;
  std::int64_t rows, classes;
  bool ignores;
  std::int64_t ignored;
  arith::RowLoss terms;
  Note note;
};

// Calls body(first, Width) for this thread's share of a row: packs of kWidth elements, and the remaining elements one
// by one.
template <int kWidth, typename Body>
__device__ void for_packs_of_row(std::int64_t count, Body body) {
  const std::int64_t packs = count / kWidth;
  for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) body(p * kWidth, Width<kWidth>{});
  const std::int64_t rest = packs * kWidth + threadIdx.x;
  if (kWidth > 1 && rest < count) body(rest, Width<1>{});
}

struct Unscaled {
  PROTRAIN_HD float operator()(float x) const { return x; }
};

// Returns log(sum(exp(x))) of `count` logits, which are read once. Each thread sums exp(x - largest) over its share,
// where `largest` is the thread's largest logit so far. A pack is summed in float32, and the packs' sums in double.
template <int kWidth, typename T, typename Scale = Unscaled>
__device__ double log_sum_exp(const T *x, std::int64_t count, Scale scaled = {}) {
  float largest = std::numeric_limits<float>::lowest();  // not -inf, which gives NaN if the share has only -inf
  double sum = 0;
  for_packs_of_row<kWidth>(count, [&](std::int64_t first, auto width) {
    constexpr int kCount = decltype(width)::value;
    const Pack<T, kCount> pack = load<kCount>(x + first);
    float above = largest;
    PROTRAIN_UNROLL
    for (int i = 0; i < kCount; ++i) above = Larger::of(above, scaled(widened(pack.at[i])));
    if (above != largest) sum *= static_cast<double>(arith::exp(largest - above));
    largest = above;
    float terms = 0;
    PROTRAIN_UNROLL
    for (int i = 0; i < kCount; ++i) terms += arith::exp(scaled(widened(pack.at[i])) - largest);
    sum += static_cast<double>(terms);
  });
  const auto all = block_fold<Larger>(largest);
  sum = block_fold<Plus>(sum * static_cast<double>(arith::exp(largest - all)));
  return static_cast<double>(all) + ::log(sum);
}

// Returns the number of threads for a row of logits. A wide row gets many threads, so that the GPU works on few rows at
// a time and these stay in the cache until they are read again.
inline int logit_threads(std::int64_t classes) { return classes < 8192 ? row_threads(classes) : 1024; }

// Returns the loss of a row of `count` logits to all threads of the block. `lse` is the row's log(sum(exp(x))). All
// threads of the block must call it.
template <typename T>
__device__ double row_loss(const arith::RowLoss &terms, const T *x, std::int64_t count, double lse,
                           std::int64_t label) {
  double sum = 0;
  if (terms.smoothing != 0)
    sum = fold_terms<Plus, double>(count, [&](std::int64_t i) { return static_cast<double>(widened(x[i])); });
  return terms.loss(lse, static_cast<double>(widened(x[label])), sum / static_cast<double>(count));
}

// Sets *total to the sum of the weights of the rows that are not ignored. Launch it with one block.
[[maybe_unused]] static __global__ void sum_weights_kernel(Targets targets, double *total) {
  const auto sum = fold_terms<Plus, double>(targets.rows, [&](std::int64_t i) {
    if (targets.taught) return 1.0;
    return targets[i] != Targets::kIgnored ? static_cast<double>(targets.weight(i)) : 0.0;
  });
  if (threadIdx.x == 0) *total = sum;
}

// Sets *loss to the sum of `rows` losses, divided by *weights if `mean`. Launch it with one block.
[[maybe_unused]] static __global__ void total_loss_kernel(const double *losses, std::int64_t rows,
                                                          const double *weights, bool mean, float *loss) {
  const auto total = fold_terms<Plus, double>(rows, [&](std::int64_t i) { return losses[i]; });
  if (threadIdx.x == 0) *loss = static_cast<float>(mean ? total / *weights : total);
}

}  // namespace protrain::backend::cuda
