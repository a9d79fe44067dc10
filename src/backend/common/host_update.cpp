#include "backend/common/host_update.h"

#include <algorithm>

#include "arith/code8.h"
#include "arith/f16.h"
#include "arith/optimizer.h"
#include "backend/common/clones.h"
#include "backend/common/optimizer_step.h"
#include "base/error.h"

namespace protrain::backend {

namespace {
using arith::bf16;
using arith::f16;

// The number of 16-bit elements in a cache line. Members' shares are cut at multiples of it, so that no two members
// write to the same line. With 8-bit moments shares are cut at whole blocks instead. Then two members may write to the
// same line of the scales.
constexpr std::int64_t kLine = 32;

template <typename Step, typename Weights, typename Gradient>
PROTRAIN_INLINE void update_range(const Step &step, const Common &common, const UpdateArrays<Weights, Gradient> &arrays,
                                  Range range) {
  const Step s = step;
  const Common c = common;
  const UpdateArrays<Weights, Gradient> at = arrays;
#pragma GCC ivdep  // the arrays do not overlap
  for (std::int64_t i = range.begin; i < range.end; ++i) update(s, c, at, i);
}

// Updates the elements of `range` with moments that are coded in 8 bits. The range begins where a block of kCodedBlock
// elements begins.
template <typename Weights, typename Gradient>
PROTRAIN_INLINE void update_range(const arith::AdamW &step, const Common &common,
                                  const CodedArrays<Weights, Gradient> &arrays, Range range) {
  const arith::AdamW s = step;
  const Common c = common;
  const CodedArrays<Weights, Gradient> at = arrays;
  float mean[arith::kCodedBlock], root[arith::kCodedBlock];
  for (std::int64_t begin = range.begin; begin < range.end; begin += arith::kCodedBlock) {
    const std::int64_t count = std::min(arith::kCodedBlock, range.end - begin), block = begin / arith::kCodedBlock;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const CodedMoments moments = update_coded(s, c, at, begin + i, block);
      mean[i] = moments.mean;
      root[i] = moments.root;
    }
    std::int32_t largest1 = 0, largest2 = 0;
    for (std::int64_t i = 0; i < count; ++i) largest1 = std::max(largest1, arith::magnitude(mean[i]));
    for (std::int64_t i = 0; i < count; ++i) largest2 = std::max(largest2, arith::magnitude(root[i]));
    const float scale1 = at.scale1[block] = arith::scale_of(largest1);
    const float scale2 = at.scale2[block] = arith::scale_of(largest2);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) at.code1[begin + i] = arith::signed_code(mean[i], scale1, s.dither);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) at.code2[begin + i] = arith::root_code(root[i], scale2, s.dither);
  }
}

#define PROTRAIN_UPDATE(STEP, ...)                                                                              \
  PROTRAIN_CLONES void update_all(const STEP &step, const Common &common, const __VA_ARGS__ &at, Range range) { \
    update_range(step, common, at, range);                                                                      \
  }
#define PROTRAIN_UPDATES(...)                                \
  PROTRAIN_UPDATE(arith::AdamW, UpdateArrays<__VA_ARGS__>)   \
  PROTRAIN_UPDATE(arith::AdamW, CodedArrays<__VA_ARGS__>)    \
  PROTRAIN_UPDATE(arith::Sgd, UpdateArrays<__VA_ARGS__>)     \
  PROTRAIN_UPDATE(arith::Adagrad, UpdateArrays<__VA_ARGS__>) \
  PROTRAIN_UPDATE(arith::Lion, UpdateArrays<__VA_ARGS__>)    \
  PROTRAIN_UPDATE(arith::Assign, UpdateArrays<__VA_ARGS__>)
PROTRAIN_UPDATES(WholeWeights, float)
PROTRAIN_UPDATES(SplitWeights<bf16>, float)
PROTRAIN_UPDATES(SplitWeights<bf16>, bf16)
PROTRAIN_UPDATES(SplitWeights<f16>, float)
PROTRAIN_UPDATES(SplitWeights<f16>, f16)
#undef PROTRAIN_UPDATES
#undef PROTRAIN_UPDATE

template <typename Weights, typename Gradient>
class ArraysUpdate : public HostUpdate {
 public:
  explicit ArraysUpdate(UpdateRequest request) : request_(std::move(request)), state_(request_.optimizer) {}

  void run(const Member &member, const Launch &launch) const override {
    const std::size_t count = request_.elements.size();
    if (*input<std::uint32_t>(launch, count) != 0) return;
    const Optimizer &optimizer = request_.optimizer;
    const GroupNumbers &numbers = request_.earlier ? launch.scalars->earlier : launch.scalars->update;
    Common common = {treatment_of(optimizer.clip_value, optional_input<float>(launch, count + 1)), 0};
    for (std::size_t i = 0; i < count; ++i) {
      const OptimizerNumbers &own = numbers[request_.group(i)];
      common.average_rest = own.average_rest;
      if (optimizer.coded) {
        update_all(own.adamw, common, CodedArrays<Weights, Gradient>::of(launch, i, state_),
                   share(request_.elements[i], arith::kCodedBlock, member));
        continue;
      }
      const auto at = UpdateArrays<Weights, Gradient>::of(launch, i, state_);
      const Range range = share(request_.elements[i], kLine, member);
      with_numbers(optimizer.kind, own, [&](const auto &step) { update_all(step, common, at, range); });
    }
  }

 private:
  const UpdateRequest request_;
  const StateOperands state_;
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
