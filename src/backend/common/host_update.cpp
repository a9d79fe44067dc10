#include "backend/common/host_update.h"

#include "arith/f16.h"
#include "arith/optimizer.h"
#include "backend/common/clones.h"
#include "backend/common/optimizer_step.h"
#include "base/error.h"

namespace protrain::backend {

namespace {
using arith::bf16;
using arith::f16;

constexpr std::int64_t kLine = 32;  // 16-bit numbers in a cache line; no two members write to the same line

template <typename Step, typename At>
PROTRAIN_INLINE void update_range(const Step &step, const arith::Treatment &treatment, const At &arrays, Range range) {
  const Step s = step;
  const arith::Treatment t = treatment;
  const At at = arrays;
#pragma GCC ivdep  // the arrays do not overlap
  for (std::int64_t i = range.begin; i < range.end; ++i) update(s, t, at, i);
}

#define PROTRAIN_UPDATE(STEP, ...)                                                                                   \
  PROTRAIN_CLONES void update_all(const STEP &step, const arith::Treatment &t, const __VA_ARGS__ &at, Range range) { \
    update_range(step, t, at, range);                                                                                \
  }
#define PROTRAIN_UPDATES(...)                  \
  PROTRAIN_UPDATE(arith::AdamW, __VA_ARGS__)   \
  PROTRAIN_UPDATE(arith::Sgd, __VA_ARGS__)     \
  PROTRAIN_UPDATE(arith::Adagrad, __VA_ARGS__) \
  PROTRAIN_UPDATE(arith::Assign, __VA_ARGS__)
PROTRAIN_UPDATES(UpdateArrays<WholeWeights, float>)
PROTRAIN_UPDATES(UpdateArrays<SplitWeights<bf16>, float>)
PROTRAIN_UPDATES(UpdateArrays<SplitWeights<bf16>, bf16>)
PROTRAIN_UPDATES(UpdateArrays<SplitWeights<f16>, float>)
PROTRAIN_UPDATES(UpdateArrays<SplitWeights<f16>, f16>)
#undef PROTRAIN_UPDATES
#undef PROTRAIN_UPDATE

template <typename Weights, typename Gradient>
class ArraysUpdate : public HostUpdate {
 public:
  explicit ArraysUpdate(UpdateRequest request) : request_(std::move(request)) {}

  void run(const Member &member, const Launch &launch) const override {
    const std::size_t count = request_.elements.size();
    if (*input<std::uint32_t>(launch, count) != 0) return;
    const Optimizer &optimizer = request_.optimizer;
    const GroupNumbers &numbers = request_.earlier ? launch.scalars->earlier : launch.scalars->update;
    const arith::Treatment treatment = treatment_of(optimizer.clip_value, optional_input<float>(launch, count + 1));
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = UpdateArrays<Weights, Gradient>::of(launch, i, optimizer.state_count());
      const Range range = share(request_.elements[i], kLine, member);
      with_numbers(optimizer.kind, numbers[request_.group(i)],
                   [&](const auto &step) { update_all(step, treatment, at, range); });
    }
  }

 private:
  const UpdateRequest request_;
};

template <typename T>
std::unique_ptr<HostUpdate> make_split_update(const UpdateRequest &request) {
  if (request.gradient == DType::f32) return std::make_unique<ArraysUpdate<SplitWeights<T>, float>>(request);
  return std::make_unique<ArraysUpdate<SplitWeights<T>, T>>(request);
}
}  // namespace

std::unique_ptr<HostUpdate> make_host_update(const UpdateRequest &request) {
  for (std::int64_t elements : request.elements)
    require(elements >= 0, Code::internal, "update", "{} elements", elements);
  if (request.weights == DType::f32 && request.gradient == DType::f32)
    return std::make_unique<ArraysUpdate<WholeWeights, float>>(request);
  const bool narrow = request.weights == DType::bf16 || request.weights == DType::f16;
  require(narrow && (request.gradient == request.weights || request.gradient == DType::f32), Code::unsupported,
          "update", "of {} weights by {} gradients", name_of(request.weights), name_of(request.gradient));
  return request.weights == DType::bf16 ? make_split_update<bf16>(request) : make_split_update<f16>(request);
}

}  // namespace protrain::backend
