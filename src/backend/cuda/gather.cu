// Gather, GatherElements and their gradients. Every index is checked before it is used. If several indices name the
// same row, the threads of the first of these indices add up the gradients of all of them, in the order of the indices.
#include <algorithm>
#include <numeric>

#include "backend/common/axes.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
// The node's indices, which are its input 1. They point into an axis of length `extent`.
struct Indices {
  const void *at;
  bool wide;  // true: int64; false: int32
  std::int64_t extent;
  Note note;

  Indices from(const Launch &launch) const {
    Indices bound = *this;
    bound.at = launch.inputs[1];
    return bound;
  }

  // Returns index i; a negative index counts from the end. If the index is out of range, notes a fault and returns -1.
  __device__ std::int64_t operator[](std::int64_t i) const {
    const std::int64_t given =
        wide ? static_cast<const std::int64_t *>(at)[i] : static_cast<const std::int32_t *>(at)[i];
    const std::int64_t index = given < 0 ? given + extent : given;
    if (index >= 0 && index < extent) return index;
    cuda::note(note, given, i);
    return -1;
  }
};

Indices indices_of(const KernelRequest &request, DeviceState &device, std::int64_t extent) {
  const DType dtype = request.inputs.at(1).dtype;
  require(dtype == DType::i64 || dtype == DType::i32, Code::unsupported, subject(request),
          "indices are int64 or int32, not {}", name_of(dtype));
  return {nullptr, dtype == DType::i64, extent, device.faults.source(FaultKind::index, subject(request), extent)};
}

// Gather copies rows of a table in packs of kCount elements of type T. kCount divides a row's length. If an index is
// out of range, its row of the result is filled with NaN or 0.
template <typename T, int kCount>
class Gather : public CudaKernel {
 public:
  Gather(const KernelRequest &request, const AxisLines &table, const Indices &indices)
      : table_(table), indices_(indices), named_(element_count(request.inputs[1].shape)) {
    table_.inner /= kCount;
  }

  void run(Stream stream, const Launch &launch) override {
    using Unit = Pack<T, kCount>;
    const Unit *from = input<Unit>(launch, 0);
    Unit *to = output<Unit>(launch, 0);
    const Indices indices = indices_.from(launch);
    each(stream, table_.outer * named_ * table_.inner,
         [from, to, indices, table = table_, named = named_] __device__(std::int64_t i) {
           std::int64_t column = 0, name = 0;
           const std::int64_t outer = divide(divide(i, table.inner, column), named, name);
           const std::int64_t row = indices[name];
           if (row >= 0) {
             to[i] = from[(outer * table.length + row) * table.inner + column];
           } else {
             for (int j = 0; j < kCount; ++j) to[i].at[j] = not_a_value<T>();
           }
         });
  }

 private:
  AxisLines table_;
  const Indices indices_;
  const std::int64_t named_;
};

// Links the indices that name the same row into a list. next[i] is the position of the first later index that names the
// same row as index i, or kNone. first[i] is the row of index i if no earlier index names this row, else kNone.
constexpr std::int64_t kNone = -1;

__global__ void chain_kernel(Indices indices, std::int64_t count, std::int64_t *next, std::int64_t *first) {
  __shared__ std::int64_t others[kBlock];
  const std::int64_t own = thread_index();
  const std::int64_t row = own < count ? indices[own] : kNone;
  std::int64_t after = kNone;
  bool leads = row != kNone;
  for (std::int64_t base = 0; base < count; base += kBlock) {
    __syncthreads();
    others[threadIdx.x] = base + threadIdx.x < count ? indices[base + threadIdx.x] : kNone;
    __syncthreads();
    const std::int64_t size = std::int64_t{kBlock} < count - base ? std::int64_t{kBlock} : count - base;
    for (std::int64_t j = 0; j < size; ++j) {
      if (others[j] != row) continue;
      leads = leads && base + j >= own;
      if (base + j > own && after == kNone) after = base + j;
    }
  }
  if (own >= count) return;
  next[own] = after;
  first[own] = leads ? row : kNone;
}

// Adds up the rows of each list, with a block for each list. A thread adds up a pack of columns at a time, because it
// has to wait for each link of the list, and this wait is as long for one column as for a pack.
template <typename T, int kCount>
__global__ void add_rows_kernel(AxisLines table, std::int64_t named, const std::int64_t *next,
                                const std::int64_t *first, const Pack<T, kCount> *dy, Pack<T, kCount> *dx) {
  std::int64_t name = 0;
  const std::int64_t outer = divide(blockIdx.x, named, name);
  const std::int64_t row = first[name];
  if (row == kNone) return;
  for (std::int64_t column = threadIdx.x; column < table.inner; column += blockDim.x) {
    float sums[kCount] = {};
    for (std::int64_t i = name; i != kNone; i = next[i]) {
      const Pack<T, kCount> from = dy[(outer * named + i) * table.inner + column];
      PROTRAIN_UNROLL for (int j = 0; j < kCount; ++j) sums[j] += widened(from.at[j]);
    }
    Pack<T, kCount> to;
    PROTRAIN_UNROLL for (int j = 0; j < kCount; ++j) to.at[j] = narrowed<T>(sums[j]);
    dx[(outer * table.length + row) * table.inner + column] = to;
  }
}

// The gradient of Gather. It adds up rows in packs of kCount elements. kCount divides a row's length.
template <typename T, int kCount>
class GatherGrad : public CudaKernel {
 public:
  GatherGrad(const KernelRequest &request, const AxisLines &table, const Indices &indices)
      : table_(table),
        indices_(indices),
        named_(element_count(request.inputs[1].shape)),
        bytes_(byte_count(request.outputs[0].dtype, request.outputs[0].shape)) {
    table_.inner /= kCount;
    scratch_bytes = checked_multiply(2 * sizeof(std::int64_t), static_cast<std::uint64_t>(named_));
  }

  void run(Stream stream, const Launch &launch) override {
    const Indices indices = indices_.from(launch);
    auto *next = static_cast<std::int64_t *>(launch.scratch), *first = next + named_;
    clear(stream, launch.outputs[0], bytes_);
    cuda::launch(stream, chain_kernel, {divided_up(named_, kBlock)}, indices, named_, next, first);
    const int threads = table_.inner >= kBlock ? kBlock : static_cast<int>(divided_up(table_.inner, kWarp)) * kWarp;
    if (bytes_ > 0)
      cuda::launch(stream, add_rows_kernel<T, kCount>, {table_.outer * named_, threads}, table_, named_,
                   static_cast<const std::int64_t *>(next), static_cast<const std::int64_t *>(first),
                   input<Pack<T, kCount>>(launch, 0), output<Pack<T, kCount>>(launch, 0));
  }

 private:
  AxisLines table_;
  const Indices indices_;
  const std::int64_t named_;
  const std::uint64_t bytes_;
};

// Makes KernelOf<T, kCount> for a table of this shape. kCount is the number of elements in 16 bytes, if it divides a
// row's length, else 1.
template <template <typename, int> class KernelOf, typename T>
KernelPtr make_of_rows(const KernelRequest &request, const Shape &shape, DeviceState &device) {
  const AxisLines table(request, shape, 0);
  const Indices indices = indices_of(request, device, table.length);
  constexpr int kMost = 16 / sizeof(T);
  if (table.inner % kMost == 0) return std::make_unique<KernelOf<T, kMost>>(request, table, indices);
  return std::make_unique<KernelOf<T, 1>>(request, table, indices);
}

// IndexedLines in the form that kernels take as an argument.
struct LineWalk {
  explicit LineWalk(const IndexedLines &lines)
      : walk(walk_of(lines.begins)),
        elements(lines.count * lines.length),
        length(lines.length),
        index_stride(lines.index_stride),
        stride(lines.stride),
        extent(lines.extent) {}

  Walk<2> walk;
  std::int64_t elements, length, index_stride, stride, extent;
};

template <typename T>
class GatherElements : public CudaKernel {
 public:
  GatherElements(const KernelRequest &request, DeviceState &device)
      : lines_(IndexedLines(request, request.inputs.at(0).shape)),
        indices_(indices_of(request, device, lines_.extent)) {}

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    const Indices indices = indices_.from(launch);
    each(stream, lines_.elements, [x, y, indices, lines = lines_] __device__(std::int64_t i) {
      std::int64_t step = 0;
      const Offsets<2> at = offsets_of(lines.walk, divide(i, lines.length, step));
      const std::int64_t place = at.at[0] + step * lines.index_stride, index = indices[place];
      y[place] = index >= 0 ? x[at.at[1] + index * lines.stride] : not_a_value<T>();
    });
  }

 private:
  const LineWalk lines_;
  const Indices indices_;
};

// The gradient of GatherElements. If several indices of a line name the same element, the thread of the first of these
// indices adds up the gradients of all of them.
template <typename T>
class GatherElementsGrad : public CudaKernel {
 public:
  GatherElementsGrad(const KernelRequest &request, DeviceState &device)
      : lines_(IndexedLines(request, request.outputs[0].shape)),
        indices_(indices_of(request, device, lines_.extent)),
        bytes_(byte_count(request.outputs[0].dtype, request.outputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    const T *dy = input<T>(launch, 0);
    T *dx = output<T>(launch, 0);
    const Indices indices = indices_.from(launch);
    clear(stream, dx, bytes_);
    each(stream, lines_.elements, [dy, dx, indices, lines = lines_] __device__(std::int64_t i) {
      std::int64_t step = 0;
      const Offsets<2> at = offsets_of(lines.walk, divide(i, lines.length, step));
      const auto named = [&](std::int64_t other) { return indices[at.at[0] + other * lines.index_stride]; };
      const std::int64_t index = named(step);
      if (index < 0) return;
      for (std::int64_t other = 0; other < step; ++other)
        if (named(other) == index) return;
      float sum = 0;
      for (std::int64_t other = step; other < lines.length; ++other)
        if (named(other) == index) sum += widened(dy[at.at[0] + other * lines.index_stride]);
      dx[at.at[1] + index * lines.stride] = narrowed<T>(sum);
    });
  }

 private:
  const LineWalk lines_;
  const Indices indices_;
  const std::uint64_t bytes_;
};

// Calls make(T{}) with the type of the elements. T is float for float32 and bf16 for bfloat16, so that an element whose
// index is out of range can become NaN. For other element types T is an integer of the same size.
template <typename Make>
KernelPtr by_element(const KernelRequest &request, Make make) {
  const DType dtype = request.inputs.at(0).dtype;
  if (dtype == DType::f32) return make(float{});
  if (dtype == DType::bf16) return make(bf16{});
  return by_size(request, dtype, make);
}
}  // namespace

KernelPtr make_gather(const KernelRequest &request, DeviceState &device) {
  return by_element(request, [&]<typename T>(T) -> KernelPtr {
    return make_of_rows<Gather, T>(request, request.inputs[0].shape, device);
  });
}

KernelPtr make_gather_grad(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    return make_of_rows<GatherGrad, T>(request, request.outputs[0].shape, device);
  });
}

KernelPtr make_gather_elements(const KernelRequest &request, DeviceState &device) {
  return by_element(request,
                    [&]<typename T>(T) -> KernelPtr { return std::make_unique<GatherElements<T>>(request, device); });
}

KernelPtr make_gather_elements_grad(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<GatherElementsGrad<T>>(request, device); });
}

}  // namespace protrain::backend::cuda
