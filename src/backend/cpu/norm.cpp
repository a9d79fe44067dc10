// LossScale, SquaredNorm, JoinSquares, GlobalNorm, ScaledNorm and GradientScale. Squares are summed in double, first in
// parts of fixed length, then over the parts in a fixed tree. The number of elements alone decides the order, so the
// bits of a sum do not depend on the team.
#include <algorithm>
#include <bit>
#include <cmath>

#include "arith/norm_tree.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kPart = 4096;
static_assert(arith::kNormPiece % kPart == 0 && std::has_single_bit(static_cast<std::uint64_t>(kPart)));
constexpr int kLanes = 16;

template <typename T>
struct Loops {
  PROTRAIN_CLONES static double sum(const T *x, std::int64_t count) {
    const auto square = [x](std::int64_t i) {
      const auto value = static_cast<double>(widened(x[i]));
      return value * value;
    };
    double lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] += square(i + l);
    for (int l = 0; i < count; ++i, ++l) lanes[l] += square(i);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    return lanes[0];
  }
};

template <typename T>
class SquaredNorm : public CpuKernel {
 public:
  explicit SquaredNorm(const KernelRequest &request) : in_piece_(request.node.attributes.integer("piece", 0) / kPart) {
    for (const graph::Type &type : request.inputs) {
      require_dtype(request, type, request.inputs[0].dtype);
      const std::int64_t elements = element_count(type.shape), parts = divided_up(elements, kPart);
      tensors_.push_back({elements, parts_, parts});
      parts_ += parts;
    }
    scratch_bytes = static_cast<std::uint64_t>(parts_) * sizeof(double);
  }

  void run(Member &member, const Launch &launch) override {
    auto *sums = static_cast<double *>(launch.scratch);
    const Range own = share(parts_, 1, member);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor &tensor = tensors_[i];
      const T *x = input<T>(launch, i);
      const std::int64_t end = std::min(own.end - tensor.first, tensor.parts);
      for (std::int64_t b = std::max<std::int64_t>(own.begin - tensor.first, 0); b < end; ++b)
        sums[tensor.first + b] = Loops<T>::sum(x + b * kPart, std::min(kPart, tensor.elements - b * kPart));
    }
    member.barrier();
    if (member.index != 0) return;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (auto *to = optional_output<double>(launch, i)) join(sums + tensors_[i].first, tensors_[i].parts, to);
  }

 private:
  struct Tensor {
    std::int64_t elements, first, parts;  // first: number of its first part among the parts of all tensors
  };

  void join(const double *sums, std::int64_t parts, double *to) const {
    if (in_piece_ == 0) *to = arith::tree_sum(sums, parts);
    for (std::int64_t b = 0; in_piece_ > 0 && b < parts; b += in_piece_)
      *to++ = arith::tree_sum(sums + b, std::min(in_piece_, parts - b));
  }

  const std::int64_t in_piece_;  // parts in a piece; 0: a tensor has one norm
  std::vector<Tensor> tensors_;
  std::int64_t parts_ = 0;
};

class JoinSquares : public CpuKernel {
 public:
  explicit JoinSquares(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) {
      require_dtype(request, type, DType::f64);
      pieces_.push_back(element_count(type.shape));
    }
  }

  void run(Member &member, const Launch &launch) override {
    const Range own = share(static_cast<std::int64_t>(pieces_.size()), 1, member);
    for (auto i = static_cast<std::size_t>(own.begin); i < static_cast<std::size_t>(own.end); ++i)
      if (auto *to = optional_output<double>(launch, i)) *to = arith::tree_sum(input<double>(launch, i), pieces_[i]);
  }

 private:
  std::vector<std::int64_t> pieces_;  // number of pieces of each tensor
};

class LossScale : public CpuKernel {
 public:
  void run(Member &member, const Launch &launch) override {
    if (member.index == 0) *output<double>(launch, 0) = launch.scalars->loss_scale;
  }
};

class GlobalNorm : public CpuKernel {
 public:
  explicit GlobalNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f64);
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index != 0) return;
    double sum = 0;
    for (std::size_t i = 0; i < launch.inputs.size(); ++i) sum += *input<double>(launch, i);
    *output<double>(launch, 0) = std::sqrt(sum);
  }
};
class ScaledNorm : public CpuKernel {
 public:
  explicit ScaledNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f64);
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index == 0) *output<double>(launch, 0) = *input<double>(launch, 0) / std::abs(*input<double>(launch, 1));
  }
};

class GradientScale : public CpuKernel {
 public:
  explicit GradientScale(const KernelRequest &request) : max_norm_(request.node.attributes.real("max_norm", 0)) {
    for (std::size_t i = 0; i < request.inputs.size(); ++i)
      if (has_input(request, i)) require_dtype(request, request.inputs[i], DType::f64);
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index != 0) return;
    const auto *norm = optional_input<double>(launch, 0), *weights = optional_input<double>(launch, 1);
    double scale = weights != nullptr ? 1 / *weights : 1;
    if (max_norm_ > 0 && norm != nullptr) scale *= std::min(1.0, max_norm_ / (*norm + 1e-6));
    *output<float>(launch, 0) = static_cast<float>(scale);
  }

 private:
  const double max_norm_;
};
}  // namespace

KernelPtr make_loss_scale(const KernelRequest &, int) { return std::make_unique<LossScale>(); }

KernelPtr make_squared_norm(const KernelRequest &request, int) {
  return make_by_float<SquaredNorm>(request, request.inputs.at(0));
}

KernelPtr make_join_squares(const KernelRequest &request, int) { return std::make_unique<JoinSquares>(request); }

KernelPtr make_global_norm(const KernelRequest &request, int) { return std::make_unique<GlobalNorm>(request); }

KernelPtr make_scaled_norm(const KernelRequest &request, int) { return std::make_unique<ScaledNorm>(request); }

KernelPtr make_gradient_scale(const KernelRequest &request, int) { return std::make_unique<GradientScale>(request); }

}  // namespace protrain::backend::cpu
