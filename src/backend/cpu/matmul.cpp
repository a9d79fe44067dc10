// MatMul: y = alpha * op(a) op(b) + c, with broadcast leading dimensions. If there are at least as many products as
// members, each member computes whole products. Otherwise all members work together on one product after the other.
#include "backend/common/matmul_shape.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/stored_gemm.h"

namespace protrain::backend::cpu {

namespace {
constexpr StoredInputs kStored = {.matrix = 1, .scales = 3};

GemmShape gemm_shape(const MatMulShape &s) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .trans_a = s.trans_a,
          .trans_b = s.trans_b,
          .bias = s.bias,
          .addend = s.addend,
          .alpha = s.alpha,
          .in = s.dtype,
          .out = s.dtype};
}

template <typename T>
class MatMul : public CpuKernel {
 public:
  MatMul(const KernelRequest &request, int team_size) {
    const MatMulShape shape(with_floats(request, kStored));
    const std::optional<StoredMatrix> stored = stored_matrix(request, kStored);
    has_addend_ = shape.addend;
    products_ = positions(shape.batch);
    whole_ = team_size > 1 && products_.size() >= static_cast<std::size_t>(team_size);
    for (int i = 0; i < (whole_ ? team_size : 1); ++i)
      gemms_.emplace_back(gemm_shape(shape), whole_ ? 1 : team_size, stored);
    scratch_bytes = checked_multiply(gemms_[0].scratch_bytes(), static_cast<std::uint64_t>(team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const auto index = static_cast<std::size_t>(whole_ ? member.index : 0);
    const auto count = static_cast<std::int64_t>(products_.size());
    const Range own = whole_ ? share(count, 1, member) : Range{0, count};
    const Member alone(0, 1, nullptr);
    const T *bias = has_addend_ ? nullptr : optional_input<T>(launch, 2);
    const T *addend = has_addend_ ? input<T>(launch, 2) : nullptr;
    std::byte *scratch =
        static_cast<std::byte *>(launch.scratch) + static_cast<std::size_t>(member.index) * gemms_[0].scratch_bytes();
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const auto [a, b, y] = products_[static_cast<std::size_t>(i)];
      gemms_[index].run(whole_ ? alone : member,
                        {input<T>(launch, 0) + a, input<T>(launch, 1) + b, output<T>(launch, 0) + y, bias,
                         has_addend_ ? addend + y : nullptr},
                        stored_operand(launch, kStored), scratch);
    }
  }

 private:
  std::vector<std::array<std::int64_t, 3>> products_;  // offsets of a, b and y
  std::vector<WeightGemm> gemms_;                      // one that the team shares, or one for each member
  bool whole_ = false, has_addend_ = false;
};
}  // namespace

KernelPtr make_matmul(const KernelRequest &request, int team_size) {
  return make_by_float<MatMul>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
