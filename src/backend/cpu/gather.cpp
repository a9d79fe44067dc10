// Gather, GatherElements and their gradients. Every index is checked before it is used. Gradients are added in float32,
// in the order of the indices. Each member owns a part of the result, so the order does not depend on the team.
#include <algorithm>
#include <cstring>

#include "backend/common/axes.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
// The node's input 1: indices into an axis of length `extent`.
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
  // Returns entry number i of the indices. A negative entry counts from the end of the axis, and is returned as an
  // index that counts from 0. Fails with Code::arg if the entry is outside of the axis.
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
        row_bytes_(table_.inner * element_bytes(request.inputs[0])) {}

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
  const AxisLines table_;
  const Indices indices_;
  const std::int64_t row_bytes_;
};

template <typename T>
struct Loops {
  PROTRAIN_CLONES static void add(const T *x, float *into, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) into[i] += widened(x[i]);
  }
};

// The gradient of Gather. Scratch holds a linked list for each row of the table. The list has the positions of all
// indices that name the row, in order.
template <typename T>
class GatherGradKernel : public CpuKernel {
 public:
  explicit GatherGradKernel(const KernelRequest &request)
      : table_(request, request.outputs[0].shape, 0), indices_(request, table_.length) {
    scratch_bytes =
        checked_multiply(static_cast<std::uint64_t>(table_.length + indices_.count()), sizeof(std::int64_t));
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index == 0) chain(launch);
    member.barrier();
    // Members own columns if there are enough for all members; else they own rows of the table.
    const bool by_columns = table_.inner >= kLine * member.size;
    const Range rows = by_columns ? Range{0, table_.length} : share(table_.length, 1, member);
    const Range columns = by_columns ? share(table_.inner, kLine, member) : Range{0, table_.inner};
    for (std::int64_t outer = 0; outer < table_.outer; ++outer)
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        for (std::int64_t at = columns.begin; at < columns.end; at += kColumnsAtOnce)
          add_up(launch, outer, row, {at, std::min(at + kColumnsAtOnce, columns.end)});
  }

 private:
  static constexpr std::int64_t kNone = -1;
  static constexpr std::int64_t kLine = 64 / sizeof(T);  // elements in a cache line
  static constexpr std::int64_t kColumnsAtOnce = 1024;   // columns whose sums a member holds on the stack

  void chain(const Launch &launch) const {
    auto *first = static_cast<std::int64_t *>(launch.scratch), *next = first + table_.length;
    std::fill_n(first, table_.length, kNone);
    for (std::int64_t i = indices_.count(); i-- > 0;) {
      const std::int64_t row = indices_.at(launch, i);
      next[i] = first[row];
      first[row] = i;
    }
  }

  void add_up(const Launch &launch, std::int64_t outer, std::int64_t row, Range columns) const {
    const auto *first = static_cast<const std::int64_t *>(launch.scratch), *next = first + table_.length;
    const T *dy = input<T>(launch, 0) + outer * indices_.count() * table_.inner + columns.begin;
    T *dx = output<T>(launch, 0) + (outer * table_.length + row) * table_.inner + columns.begin;
    if (first[row] == kNone) {
      std::fill_n(dx, columns.size(), T{});
      return;
    }
    alignas(64) float sums[kColumnsAtOnce];
    std::fill_n(sums, columns.size(), 0.0f);
    for (std::int64_t i = first[row]; i != kNone; i = next[i])
      Loops<T>::add(dy + i * table_.inner, sums, columns.size());
    narrow(sums, dx, columns.size());
  }

  const AxisLines table_;
  const Indices indices_;
};

// Calls body(i, at) for each line of GatherElements that the member owns. The line begins at element i of the indices,
// and at element `at` of the tensor.
template <typename Body>
void for_each_line(const IndexedLines &lines, const Member &member, Body &&body) {
  for_each_run(lines.begins, share(lines.count, 1, member), [&](std::int64_t, const auto &offsets, std::int64_t count) {
    for (std::int64_t line = 0; line < count; ++line)
      body(offsets[0] + line * lines.begins.inner_stride(0), offsets[1] + line * lines.begins.inner_stride(1));
  });
}

template <typename T>
class GatherElementsKernel : public CpuKernel {
 public:
  explicit GatherElementsKernel(const KernelRequest &request)
      : lines_(request, request.inputs.at(0).shape), indices_(request, lines_.extent) {}

  void run(Member &member, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    for_each_line(lines_, member, [&](std::int64_t i, std::int64_t at) {
      for (std::int64_t n = 0; n < lines_.length; ++n, i += lines_.index_stride)
        y[i] = x[at + indices_.at(launch, i) * lines_.stride];
    });
  }

 private:
  const IndexedLines lines_;
  const Indices indices_;
};

// The gradient of GatherElements. A member sums the gradients of a line in float32, in its own part of scratch. It sets
// and reads only the sums of those elements that an index names.
template <typename T>
class GatherElementsGradKernel : public CpuKernel {
 public:
  GatherElementsGradKernel(const KernelRequest &request, int team_size)
      : lines_(request, request.outputs[0].shape),
        indices_(request, lines_.extent),
        elements_(element_count(request.outputs[0].shape)) {
    scratch_bytes = checked_multiply(static_cast<std::uint64_t>(lines_.extent) * sizeof(float),
                                     static_cast<std::uint64_t>(members_at_work(lines_.count, team_size)));
  }

  void run(Member &member, const Launch &launch) override {
    const T *dy = input<T>(launch, 0);
    T *dx = output<T>(launch, 0);
    float *sums = static_cast<float *>(launch.scratch) + member.index * lines_.extent;
    const Range cleared = share(elements_, kElementGrain, member);
    std::fill_n(dx + cleared.begin, cleared.size(), T{});
    member.barrier();
    for_each_line(lines_, member, [&](std::int64_t first, std::int64_t at) {
      const auto each = [&](auto body) {
        std::int64_t i = first;
        for (std::int64_t n = 0; n < lines_.length; ++n, i += lines_.index_stride) body(i, indices_.at(launch, i));
      };
      each([&](std::int64_t, std::int64_t index) { sums[index] = 0; });
      each([&](std::int64_t i, std::int64_t index) { sums[index] += widened(dy[i]); });
      each([&](std::int64_t, std::int64_t index) { dx[at + index * lines_.stride] = narrowed<T>(sums[index]); });
    });
  }

 private:
  const IndexedLines lines_;
  const Indices indices_;
  const std::int64_t elements_;
};
}  // namespace

KernelPtr make_gather(const KernelRequest &request, int) { return std::make_unique<GatherKernel>(request); }

KernelPtr make_gather_grad(const KernelRequest &request, int) {
  return make_by_float<GatherGradKernel>(request, request.inputs.at(0));
}

KernelPtr make_gather_elements(const KernelRequest &request, int) {
  return make_by_size<GatherElementsKernel>(request, request.inputs.at(0).dtype);
}

KernelPtr make_gather_elements_grad(const KernelRequest &request, int team_size) {
  return make_by_float<GatherElementsGradKernel>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
