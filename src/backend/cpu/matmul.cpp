// MatMul: y = alpha * op(a) op(b) + bias, leading dimensions broadcast. One product where b is one matrix for all of
// a's rows; else many small ones, whole ones per member where there are enough of them.
#include "backend/cpu/floats.h"
#include "backend/cpu/gemm.h"
#include "base/shape.h"

namespace protrain::backend {

namespace {
// Where each product of the batch finds its operands, in elements.
struct Offsets {
  std::int64_t a, b;
};

std::vector<Offsets> batch_offsets(const Shape &a, const Shape &b, const Shape &batch) {
  auto strides = [&](const Shape &shape) {  // over `batch`; 0 where the operand repeats
    std::vector<std::int64_t> result(batch.size(), 0);
    std::int64_t step = shape[shape.size() - 1] * shape[shape.size() - 2];
    for (std::size_t i = 2; i < shape.size(); ++i) {
      const std::int64_t dim = shape[shape.size() - 1 - i];
      if (dim != 1) result[batch.size() + 1 - i] = step;
      step *= dim;
    }
    return result;
  };
  const std::vector<std::int64_t> strides_a = strides(a), strides_b = strides(b);
  std::vector<Offsets> offsets(static_cast<std::size_t>(element_count(batch)), Offsets{0, 0});
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = batch.size(); axis-- > 0; rest /= batch[axis]) {
      offsets[i].a += rest % batch[axis] * strides_a[axis];
      offsets[i].b += rest % batch[axis] * strides_b[axis];
    }
  }
  return offsets;
}

template <typename T>
class MatMul : public CpuKernel {
 public:
  MatMul(const KernelRequest &request, int team_size) {
    const DType dtype = request.inputs.at(0).dtype;
    for (const graph::Type &type : request.inputs)
      if (type.dtype != DType::none) require_dtype(request, type, dtype);
    Shape a = request.inputs[0].shape, b = request.inputs.at(1).shape;
    const graph::Attributes &attributes = request.node.attributes;
    require(a.size() >= 2 && b.size() >= 2, Code::unsupported, subject(request),
            "MatMul on the cpu takes matrices, these are {} and {}", to_text(a), to_text(b));
    GemmShape shape{.in = dtype, .out = dtype};
    shape.trans_a = attributes.integer("trans_a", 0) != 0;
    shape.trans_b = attributes.integer("trans_b", 0) != 0;
    shape.alpha = static_cast<float>(attributes.real("alpha", 1));
    if (b.size() == 2 && !shape.trans_a)  // (..., M, K) x (K, N): all rows are one matrix's
      a = {element_count({a.begin(), a.end() - 1}), a.back()};
    shape.m = a[a.size() - (shape.trans_a ? 1 : 2)];
    shape.k = a[a.size() - (shape.trans_a ? 2 : 1)];
    shape.n = b[b.size() - (shape.trans_b ? 2 : 1)];
    shape.bias = has_input(request, 2);
    offsets_ = batch_offsets(a, b, broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, subject(request)));
    // Whole products per member, unless there are too few to go round.
    whole_ = team_size > 1 && offsets_.size() >= static_cast<std::size_t>(team_size);
    for (int i = 0; i < (whole_ ? team_size : 1); ++i) gemms_.emplace_back(shape, whole_ ? 1 : team_size);
    shape_ = shape;
    scratch_bytes = checked_multiply(gemms_[0].scratch_bytes(), static_cast<std::uint64_t>(team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const auto index = static_cast<std::size_t>(whole_ ? member.index : 0);
    const auto batch = static_cast<std::int64_t>(offsets_.size());
    const Range own = whole_ ? share(batch, 1, member) : Range{0, batch};
    const Member alone(0, 1, nullptr);
    std::byte *scratch =
        static_cast<std::byte *>(launch.scratch) + static_cast<std::size_t>(member.index) * gemms_[0].scratch_bytes();
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const Offsets &at = offsets_[static_cast<std::size_t>(i)];
      gemms_[index].run(whole_ ? alone : member,
                        {input<T>(launch, 0) + at.a, input<T>(launch, 1) + at.b,
                         output<T>(launch, 0) + i * shape_.m * shape_.n, optional_input<T>(launch, 2)},
                        scratch);
    }
  }

 private:
  GemmShape shape_;
  std::vector<Offsets> offsets_;
  std::vector<Gemm> gemms_;  // one cut over the team, or one whole for each member
  bool whole_ = false;
};
}  // namespace

std::unique_ptr<CpuKernel> make_matmul(const KernelRequest &request, int team_size) {
  return make_by_float<MatMul>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend
