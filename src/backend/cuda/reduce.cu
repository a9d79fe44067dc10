// ReduceSum, ReduceMean, ReduceMax, ReduceMin over any axes, in an order that depends on shapes alone. Floats are
// summed in double; sums of integers wrap around. Sums of a matrix's columns use columns.h, which adds bfloat16 in
// float32.
//
// One walk goes over the kept axes, another over the reduced axes. The elements that make up a result are cut into
// parts. If neighbours in memory belong to the same result, the threads of a block reduce a part together. If they
// belong to different results, each thread reduces whole parts alone. A second kernel joins the parts of each result in
// order.
#include <algorithm>

#include "backend/common/axes.h"
#include "backend/cuda/columns.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kMostParts = 256;                      // most parts of one result
constexpr std::int64_t kSharedPart = kEmulated ? 300 : 8192;  // elements in a part that a block reduces, at least
constexpr std::int64_t kOwnPart = kEmulated ? 5 : 64;         // elements in a part that one thread reduces, at least
constexpr std::int64_t kEnough = 132 * 2048;  // threads that keep a large device busy; more parts would gain nothing

struct Reduction {
  Walk<1> kept, reduced;
  std::int64_t results, elements;  // number of results; elements of one result
  std::int64_t part, parts;        // elements in a part; parts of a result
  float divisor;
};

template <typename T, typename A>
__device__ T finished(const Reduction &r, A value) {
  if constexpr (std::is_floating_point_v<A>)
    return narrowed<T>(static_cast<float>(value / static_cast<A>(r.divisor)));
  else
    return value;
}

// The place that the parts' values are written to: `partial`, or y if each result has only one part.
template <typename T, typename A>
struct Values {
  A *partial;  // (results, parts)
  T *y;

  __device__ void put(const Reduction &r, std::int64_t result, std::int64_t part, A value) const {
    if (r.parts == 1)
      y[result] = finished<T>(r, value);
    else
      partial[result * r.parts + part] = value;
  }
};

template <typename Join, typename T, typename A>
__global__ void shared_kernel(Reduction r, const T *x, Values<T, A> to) {
  std::int64_t part = 0;
  const std::int64_t result = divide(blockIdx.x, r.parts, part), first = part * r.part;
  const T *from = x + offsets_of(r.kept, result).at[0];
  const std::int64_t count = r.part < r.elements - first ? r.part : r.elements - first;
  const A value = fold_terms<Join, A>(
      count, [&](std::int64_t i) { return static_cast<A>(operand(from[offsets_of(r.reduced, first + i).at[0]])); });
  if (threadIdx.x == 0) to.put(r, result, part, value);
}

// Each thread reduces whole parts alone. Thread i takes part i / results of result i % results, so that neighbouring
// threads read neighbouring elements.
template <typename Join, typename T, typename A>
__global__ void own_kernel(Reduction r, const T *x, Values<T, A> to) {
  for (std::int64_t i = thread_index(); i < r.results * r.parts; i += thread_count()) {
    std::int64_t result = 0;
    const std::int64_t part = divide(i, r.results, result), first = part * r.part;
    const T *from = x + offsets_of(r.kept, result).at[0];
    const std::int64_t end = first + r.part < r.elements ? first + r.part : r.elements;
    A value = Join::template start<A>();
    for (std::int64_t j = first; j < end; ++j)
      value = Join::of(value, static_cast<A>(operand(from[offsets_of(r.reduced, j).at[0]])));
    to.put(r, result, part, value);
  }
}

template <typename Join, typename T, typename A>
__global__ void join_parts_kernel(Reduction r, Values<T, A> of) {
  for (std::int64_t i = thread_index(); i < r.results; i += thread_count()) {
    const A *partial = of.partial + i * r.parts;
    A value = partial[0];
    for (std::int64_t part = 1; part < r.parts; ++part) value = Join::of(value, partial[part]);
    of.y[i] = finished<T>(r, value);
  }
}

template <typename T>
struct ToResult {
  T *y;
  float divisor;
  __device__ void operator()(std::int64_t column, double sum) const {
    y[column] = narrowed<T>(static_cast<float>(sum / static_cast<double>(divisor)));
  }
};

// The sums of a matrix's columns, (rows, columns) -> (columns), such as a bias's gradient.
template <typename T>
class SumColumns : public CudaKernel {
 public:
  SumColumns(const Layout<1> &kept, const Layout<1> &reduced, float divisor)
      : sums_(reduced.count(), kept.count(), reduced.strides[0].at(0)), divisor_(divisor) {
    scratch_bytes = sums_.scratch_bytes();
  }

  void run(Stream stream, const Launch &launch) override {
    sums_.run(stream, input<T>(launch, 0), launch.scratch, ToResult<T>{output<T>(launch, 0), divisor_});
  }

  static bool suits(const Layout<1> &kept, const Layout<1> &reduced) {
    return kept.dims.size() == 1 && reduced.dims.size() == 1 && kept.strides[0][0] == 1;
  }

 private:
  const ColumnSums<T> sums_;
  const float divisor_;
};

// A tensor's dims, divided into kept and reduced ones.
struct Axes {
  explicit Axes(const KernelRequest &request) {
    const Shape &shape = request.inputs[0].shape;
    const Strides strides = row_major_strides(shape);
    const std::vector<bool> flags = reduced_axes(request);
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      Layout<1> &layout = flags[axis] ? reduced : kept;
      layout.dims.push_back(shape[axis]);
      layout.strides[0].push_back(strides[axis]);
      if (shape[axis] > 1) shares = flags[axis];
    }
    kept = merged(kept, subject(request));
    reduced = merged(reduced, subject(request));
  }

  Layout<1> kept, reduced;
  bool shares = false;  // neighbours in memory belong to one result
};

float divisor(const KernelRequest &request, const Axes &axes) {
  return request.node.op == "ReduceMean" ? static_cast<float>(axes.reduced.count()) : 1.0f;
}

// Reduces elements of type T to results of type T. Join joins the elements as numbers of type A.
template <typename Join, typename T, typename A>
class Reduce : public CudaKernel {
 public:
  Reduce(const KernelRequest &request, const Axes &axes) : shares_(axes.shares) {
    const std::int64_t results = axes.kept.count(), elements = axes.reduced.count();
    const std::int64_t least = shares_ ? kSharedPart : kOwnPart;
    const std::int64_t useful = std::max<std::int64_t>(1, kEnough / std::max<std::int64_t>(1, results));
    std::int64_t parts = std::clamp<std::int64_t>(divided_up(elements, least), 1, std::min(kMostParts, useful));
    const std::int64_t part = std::max<std::int64_t>(1, divided_up(elements, parts));
    parts = std::max<std::int64_t>(1, divided_up(elements, part));
    plan_ = {walk_of(axes.kept), walk_of(axes.reduced), results, elements, part, parts, divisor(request, axes)};
    if (parts > 1) scratch_bytes = checked_multiply(static_cast<std::uint64_t>(results * parts), sizeof(A));
  }

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    const Values<T, A> values{static_cast<A *>(launch.scratch), output<T>(launch, 0)};
    if (shares_)
      cuda::launch(stream, shared_kernel<Join, T, A>, {plan_.results * plan_.parts, row_threads(plan_.part / 4)}, plan_,
                   x, values);
    else
      cuda::launch(stream, own_kernel<Join, T, A>, grid_of(plan_.results * plan_.parts), plan_, x, values);
    if (plan_.parts > 1) cuda::launch(stream, join_parts_kernel<Join, T, A>, grid_of(plan_.results), plan_, values);
  }

 private:
  Reduction plan_;
  const bool shares_;
};

template <typename T, typename Sum, typename Extreme>
KernelPtr make_reduction(const KernelRequest &request) {
  const std::string &op = request.node.op;
  const Axes axes(request);
  if (op == "ReduceMax") return std::make_unique<Reduce<Larger, T, Extreme>>(request, axes);
  if (op == "ReduceMin") return std::make_unique<Reduce<Smaller, T, Extreme>>(request, axes);
  if constexpr (!std::is_integral_v<T>)
    if (!axes.shares && SumColumns<T>::suits(axes.kept, axes.reduced))
      return std::make_unique<SumColumns<T>>(axes.kept, axes.reduced, divisor(request, axes));
  return std::make_unique<Reduce<Plus, T, Sum>>(request, axes);
}
}  // namespace

KernelPtr make_reduce(const KernelRequest &request, DeviceState &) {
  const DType dtype = request.inputs.at(0).dtype;
  if (dtype == DType::i64 || dtype == DType::i32) {
    require(request.node.op != "ReduceMean", Code::unsupported, subject(request), "cuda has no mean of integers");
    if (dtype == DType::i64) return make_reduction<std::int64_t, std::int64_t, std::int64_t>(request);
    return make_reduction<std::int32_t, std::int32_t, std::int32_t>(request);
  }
  return by_float(request, request.inputs[0],
                  [&]<typename T>(T) -> KernelPtr { return make_reduction<T, double, float>(request); });
}

}  // namespace protrain::backend::cuda
