// CtcLoss and its gradient. The first launch computes the lse (log-sum-exp) of each row of logits, with a block for
// each row. The second sums over the paths, with a block for each sample. The third launch of the loss has one block,
// which adds up the samples' losses. The third launch of the gradient has a block for each row.
#include "backend/common/ctc_shape.h"
#include "backend/cuda/targets.h"

namespace protrain::backend::cuda {

namespace {
// The operands of the kernels of CtcLoss and its gradient.
template <typename T>
struct Ctc {
  CtcShape shape;
  CtcScratch scratch;
  const T *logits;
  const void *labels, *lengths;
  const float *upstream;  // the gradient of the loss; nullptr in forward
  Note class_note, blank_note, length_note;

  __device__ double log_p(std::int64_t row, std::int64_t of) const {
    return static_cast<double>(widened(logits[row * shape.classes + of])) - scratch.lse[row];
  }

  // Reads the labels and the length of a sample. If they are not legal, notes a fault and returns false.
  __device__ bool open(std::int64_t n) const {
    const std::int64_t count = shape.take_labels(labels, n, scratch);
    const std::int64_t length = lengths == nullptr ? shape.times : shape.integer(lengths, shape.wide_lengths, n);
    const bool fits = length >= 0 && length <= shape.times;
    scratch.samples[n] = {0, 0, NAN, NAN};
    if (count < 0) {
      const std::int64_t label = shape.integer(labels, shape.wide_labels, -1 - count);
      note(label == shape.blank ? blank_note : class_note, label, -1 - count);
    } else if (!fits) {
      note(length_note, length, n);
    } else {
      scratch.samples[n] = {length, count, 0, 0};
    }
    return count >= 0 && fits;
  }
};

template <typename T>
__global__ void ctc_rows_kernel(Ctc<T> ctc) {
  const std::int64_t row = blockIdx.x;
  const double lse = log_sum_exp<1>(ctc.logits + row * ctc.shape.classes, ctc.shape.classes);
  if (threadIdx.x == 0) ctc.scratch.lse[row] = lse;
}

// Runs CTC's forward algorithm: for each time and state of a sample, sums the probabilities of all paths that reach the
// state at the time, as logarithms. For the gradient, the sums of all times are kept. The backward algorithm then
// replaces each sum by a probability: that a path which gives the labels is in this state at this time.
template <typename T>
__global__ void ctc_paths_kernel(Ctc<T> ctc) {
  __shared__ bool legal;
  const CtcShape &shape = ctc.shape;
  const std::int64_t n = blockIdx.x;
  if (threadIdx.x == 0) legal = ctc.open(n);
  __syncthreads();
  if (!legal) return;
  const arith::CtcStates states = shape.states(ctc.scratch, n);
  const std::int64_t length = ctc.scratch.samples[n].length, first = n * shape.times;
  const double *before = nullptr;
  for (std::int64_t t = 0; t < length; ++t) {
    double *now = shape.gradient ? shape.row(ctc.scratch, n, t) : shape.turn(ctc.scratch, n, t);
    for (std::int64_t s = threadIdx.x; s < states.count(); s += blockDim.x)
      now[s] = (t == 0 ? states.begin(s) : states.arriving(before, s)) + ctc.log_p(first + t, states.class_of(s));
    before = now;
    __syncthreads();
  }
  const double empty = states.labels_count == 0 ? 0.0 : -INFINITY;
  const double all = before == nullptr ? empty : states.total(before);
  if (threadIdx.x == 0) shape.settle(ctc.scratch.samples[n], all);
  for (std::int64_t t = length - 1; shape.gradient && t >= 0; --t) {
    __syncthreads();
    double *row = shape.row(ctc.scratch, n, t), *now = shape.turn(ctc.scratch, n, t);
    for (std::int64_t s = threadIdx.x; s < states.count(); s += blockDim.x) {
      const double rest = t + 1 == length ? states.end(s) : states.leaving(shape.turn(ctc.scratch, n, t + 1), s);
      row[s] = ::exp(row[s] + rest - all);
      now[s] = rest + ctc.log_p(first + t, states.class_of(s));
    }
  }
}

template <typename T>
__global__ void ctc_gradient_kernel(Ctc<T> ctc, T *dx) {
  const CtcShape &shape = ctc.shape;
  const std::int64_t row = blockIdx.x, n = row / shape.times, t = row % shape.times;
  const CtcSample sample = ctc.scratch.samples[n];
  const arith::CtcStates states = shape.states(ctc.scratch, n);
  const double *of_states = shape.row(ctc.scratch, n, t);
  const double factor = static_cast<double>(*ctc.upstream) * sample.share;
  T *to = dx + row * shape.classes;
  const bool counts = t < sample.length && sample.share != 0;
  if (!counts) {
    const float nothing = sample.share == sample.share ? 0.0f : NAN;  // the share is NaN after a fault
    for (std::int64_t i = threadIdx.x; i < shape.classes; i += blockDim.x) to[i] = narrowed<T>(nothing);
    return;
  }
  for (std::int64_t i = threadIdx.x; i < shape.classes; i += blockDim.x) {
    const float log_p = widened(ctc.logits[row * shape.classes + i]) - static_cast<float>(ctc.scratch.lse[row]);
    to[i] = narrowed<T>(static_cast<float>(factor) * arith::exp(log_p));
  }
  const auto blanks =
      fold_terms<Plus, double>(states.labels_count + 1, [&](std::int64_t k) { return of_states[2 * k]; });
  const auto set = [&](std::int64_t at, double given) {
    to[at] = narrowed<T>(static_cast<float>(factor * (::exp(ctc.log_p(row, at)) - given)));
  };
  __syncthreads();
  if (threadIdx.x == 0) set(shape.blank, blanks);
  for (std::int64_t k = threadIdx.x; k < states.labels_count; k += blockDim.x) {
    bool is_first = true;
    for (std::int64_t j = 0; j < k; ++j) is_first &= states.labels[j] != states.labels[k];
    double given = 0;
    for (std::int64_t j = k; is_first && j < states.labels_count; ++j)
      if (states.labels[j] == states.labels[k]) given += of_states[2 * j + 1];
    if (is_first) set(states.labels[k], given);
  }
}

template <typename T>
__global__ void ctc_total_kernel(Ctc<T> ctc, float *loss) {
  const auto sum = fold_terms<Plus, double>(
      ctc.shape.samples, [&](std::int64_t n) { return ctc.scratch.samples[n].loss * ctc.scratch.samples[n].share; });
  if (threadIdx.x == 0) *loss = static_cast<float>(sum);
}

template <typename T>
class CtcLoss : public CudaKernel {
 public:
  CtcLoss(const KernelRequest &request, DeviceState &device)
      : shape_(request),
        class_note_(device.faults.source(FaultKind::label, subject(request), shape_.classes)),
        blank_note_(device.faults.source(FaultKind::blank, subject(request))),
        length_note_(device.faults.source(FaultKind::length, subject(request), shape_.times + 1)) {
    if (shape_.gradient) require_dtype(request, request.inputs[0], DType::f32);
    scratch_bytes = shape_.scratch_bytes();
  }

  void run(Stream stream, const Launch &launch) override {
    const Ctc<T> ctc = {shape_,
                        shape_.from(launch.scratch),
                        input<T>(launch, shape_.logits),
                        launch.inputs[shape_.logits + 1],
                        optional_input<std::byte>(launch, shape_.logits + 2),
                        shape_.gradient ? input<float>(launch, 0) : nullptr,
                        class_note_,
                        blank_note_,
                        length_note_};
    const Grid rows = {shape_.rows(), row_threads(shape_.classes)};
    cuda::launch(stream, ctc_rows_kernel<T>, rows, ctc);
    cuda::launch(stream, ctc_paths_kernel<T>, {shape_.samples, row_threads(2 * shape_.width + 1)}, ctc);
    if (shape_.gradient)
      cuda::launch(stream, ctc_gradient_kernel<T>, rows, ctc, output<T>(launch, 0));
    else
      cuda::launch(stream, ctc_total_kernel<T>, {1}, ctc, output<float>(launch, 0));
  }

 private:
  const CtcShape shape_;
  const Note class_note_, blank_note_, length_note_;
};
}  // namespace

KernelPtr make_ctc_loss(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(request.node.op == "CtcLossGrad" ? 1 : 0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<CtcLoss<T>>(request, device); });
}

}  // namespace protrain::backend::cuda
