// Gather, GatherElements and their gradients. Every index is checked before it is used. Gradients add in the order of
// the indices, whoever adds: members own parts of the result.
#include <algorithm>
#include <cstring>

#include "backend/axes.h"
#include "backend/cpu/elementwise.h"

namespace protrain::backend {

namespace {
// The indices among a kernel's operands (input 1), counting into an axis of `extent`.
class Indices {
 public:
  Indices(const KernelRequest &request, std::int64_t extent)
      : dtype_(request.inputs.at(1).dtype),
        count_(element_count(request.inputs[1].shape)),
        extent_(extent),
        subject_(subject(request)) {
    require(dtype_ == DType::i64 || dtype_ == DType::i32, Code::unsupported, subject_,
            "indices are int64 or int32, not {}", name_of(dtype_));
  }

  std::int64_t count() const { return count_; }
  // In [0, extent), whatever the memory holds.
  std::int64_t at(const Launch &launch, std::int64_t i) const {
    const std::int64_t given =
        dtype_ == DType::i64 ? input<std::int64_t>(launch, 1)[i] : input<std::int32_t>(launch, 1)[i];
    const std::int64_t index = given < 0 ? given + extent_ : given;
    if (index < 0 || index >= extent_) fail(Code::arg, subject_, "index {} is outside 0..{}", given, extent_ - 1);
    return index;
  }

 private:
  DType dtype_;
  std::int64_t count_, extent_;
  std::string subject_;
};

class GatherKernel : public CpuKernel {
 public:
  explicit GatherKernel(const KernelRequest &request)
      : table_(request, request.inputs.at(0).shape, 0),
        indices_(request, table_.length),
        row_bytes_(table_.inner * static_cast<std::int64_t>(size_of(request.inputs[0].dtype))) {}

  void run(Member &member, const Launch &launch) override {
    const std::byte *from = input<std::byte>(launch, 0);
    std::byte *to = output<std::byte>(launch, 0);
    const Range rows = share(table_.outer * indices_.count(), 1, member);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t source = row / indices_.count() * table_.length + indices_.at(launch, row % indices_.count());
      std::memcpy(to + row * row_bytes_, from + source * row_bytes_, static_cast<std::size_t>(row_bytes_));
    }
  }

 private:
  const Lanes table_;
  const Indices indices_;
  const std::int64_t row_bytes_;
};

PROTRAIN_CLONES void add(const float *x, float *into, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) into[i] += x[i];
}

class GatherGradKernel : public CpuKernel {
 public:
  explicit GatherGradKernel(const KernelRequest &request)
      : table_(request, request.outputs[0].shape, 0),
        indices_(request, table_.length),
        elements_(element_count(request.outputs[0].shape)) {
    require_dtype(request, request.inputs.at(0), DType::f32);
  }

  void run(Member &member, const Launch &launch) override {
    const Range cleared = share(elements_, kElementGrain, member);
    std::fill_n(output<float>(launch, 0) + cleared.begin, cleared.size(), 0.0f);
    member.barrier();
    // Members own columns where there are enough for all of them, else rows of the table.
    const bool by_columns = table_.inner >= kColumns * member.size;
    const Range all_columns{0, table_.inner}, all_rows{0, table_.length};
    add_rows(launch, by_columns ? all_rows : share(table_.length, 1, member),
             by_columns ? share(table_.inner, kColumns, member) : all_columns);
  }

 private:
  static constexpr std::int64_t kColumns = 16;  // a cache line

  void add_rows(const Launch &launch, Range rows, Range columns) const {
    const float *dy = input<float>(launch, 0);
    float *dx = output<float>(launch, 0);
    for (std::int64_t outer = 0; outer < table_.outer; ++outer)
      for (std::int64_t i = 0; i < indices_.count(); ++i, dy += table_.inner) {
        const std::int64_t row = indices_.at(launch, i);
        if (row < rows.begin || row >= rows.end) continue;
        add(dy + columns.begin, dx + (outer * table_.length + row) * table_.inner + columns.begin, columns.size());
      }
  }

  const Lanes table_;
  const Indices indices_;
  const std::int64_t elements_;
};

// The lines along the axis in a walk over the indices of GatherElements: where each begins in the indices and in the
// tensor they point into, of which the indices may cover a part.
class Lines {
 public:
  Lines(const KernelRequest &request, const Shape &tensor)
      : Lines(request, tensor, request.inputs.at(1).shape,
              resolve_axis(request.node.attributes.integer("axis", 0), tensor.size(), subject(request))) {}

  // Calls body(i, at) for every index i of the member's lines, in order; `at` + index * stride() is the element meant.
  template <typename Body>
  void for_each(const Member &member, Body &&body) const {
    for_each_run(layout_, share(length_ == 0 ? 0 : layout_.count(), 1, member),
                 [&](std::int64_t, const auto &offsets, std::int64_t count) {
                   for (std::int64_t line = 0; line < count; ++line)
                     for (std::int64_t i = 0; i < length_; ++i)
                       body(offsets[0] + line * layout_.inner_stride(0) + i * index_stride_,
                            offsets[1] + line * layout_.inner_stride(1));
                 });
  }
  std::int64_t stride() const { return stride_; }
  std::int64_t extent() const { return extent_; }

 private:
  Lines(const KernelRequest &request, const Shape &tensor, Shape indices, std::size_t axis)
      : length_(indices.at(axis)), extent_(tensor[axis]) {
    Layout<2> layout{indices, {row_major_strides(indices), row_major_strides(tensor)}};
    for (std::size_t i = 0; i < tensor.size(); ++i)
      require(i == axis || layout.dims.at(i) <= tensor[i], Code::shape, subject(request),
              "indices {} reach over axis {} of {}", to_text(indices), i, to_text(tensor));
    index_stride_ = layout.strides[0][axis];
    stride_ = layout.strides[1][axis];
    layout.dims[axis] = 1;
    layout_ = merged(layout, subject(request));
  }

  Layout<2> layout_;
  std::int64_t length_, extent_, index_stride_, stride_;
};

template <typename T>
class GatherElementsKernel : public CpuKernel {
 public:
  explicit GatherElementsKernel(const KernelRequest &request)
      : lines_(request, request.inputs.at(0).shape), indices_(request, lines_.extent()) {}

  void run(Member &member, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    lines_.for_each(member,
                    [&](std::int64_t i, std::int64_t at) { y[i] = x[at + indices_.at(launch, i) * lines_.stride()]; });
  }

 private:
  const Lines lines_;
  const Indices indices_;
};

class GatherElementsGradKernel : public CpuKernel {
 public:
  explicit GatherElementsGradKernel(const KernelRequest &request)
      : lines_(request, request.outputs[0].shape),
        indices_(request, lines_.extent()),
        elements_(element_count(request.outputs[0].shape)) {
    require_dtype(request, request.inputs.at(0), DType::f32);
  }

  void run(Member &member, const Launch &launch) override {
    const float *dy = input<float>(launch, 0);
    float *dx = output<float>(launch, 0);
    const Range cleared = share(elements_, kElementGrain, member);
    std::fill_n(dx + cleared.begin, cleared.size(), 0.0f);
    member.barrier();
    lines_.for_each(
        member, [&](std::int64_t i, std::int64_t at) { dx[at + indices_.at(launch, i) * lines_.stride()] += dy[i]; });
  }

 private:
  const Lines lines_;
  const Indices indices_;
  const std::int64_t elements_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_gather(const KernelRequest &request, int) {
  return std::make_unique<GatherKernel>(request);
}

std::unique_ptr<CpuKernel> make_gather_grad(const KernelRequest &request, int) {
  return std::make_unique<GatherGradKernel>(request);
}

std::unique_ptr<CpuKernel> make_gather_elements(const KernelRequest &request, int) {
  return make_by_size<GatherElementsKernel>(request, request.inputs.at(0).dtype);
}

std::unique_ptr<CpuKernel> make_gather_elements_grad(const KernelRequest &request, int) {
  return std::make_unique<GatherElementsGradKernel>(request);
}

}  // namespace protrain::backend
