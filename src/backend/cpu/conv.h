// The ways to compute Conv, ConvTranspose and ConvWeightGrad on the CPU. All take float32, and add up in float32.
//
// Each way cuts the work into units by a rule that depends on the shape alone, and members share the units. A sum lies
// within one unit, and its order is fixed, so bits do not depend on the team's size.
#pragma once

#include <algorithm>

#include "backend/common/conv_shape.h"
#include "backend/common/scratch_layout.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

// Uses oneDNN's convolutions, in oneDNN's layouts. Takes bfloat16 too. Returns nullptr if oneDNN has none for the
// shape.
KernelPtr make_blocked_conv(const ConvShape &shape, int team_size);
// Computes each channel by itself. Returns nullptr unless each channel is a group with one map. A member's scratch has
// room for a channel with its pads: all places from the beginning of the first window to the end of the last one.
KernelPtr make_depthwise_conv(const ConvShape &shape, int team_size);
// Computes products of unrolled windows. Takes any shape, however far its windows spread.
KernelPtr make_unrolled_conv(const ConvShape &shape, int team_size);

// Adds the channel's bias to its `sums`, if the launch has a bias, and stores the results in `to`.
template <typename T>
void store_channel(const float *sums, const Launch &launch, std::int64_t channel, T *to, std::int64_t count) {
  const T *bias = optional_input<T>(launch, kConvBias);
  const float added = bias == nullptr ? 0 : widened(bias[channel]);
  for (std::int64_t i = 0; i < count; ++i) to[i] = narrowed<T>(sums[i] + added);
}

// The scratch of a kernel: a part that the team shares, and a part for each member.
class TeamScratch {
 public:
  TeamScratch() = default;
  TeamScratch(std::uint64_t shared, std::uint64_t own)
      : shared_(round_up(shared, kAlignment)), own_(round_up(own, kAlignment)) {}
  std::uint64_t bytes(int members) const {
    return checked_add(shared_, checked_multiply(own_, static_cast<std::uint64_t>(members)));
  }
  template <typename E>
  static E *shared(const Launch &launch, std::uint64_t at) {
    return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) + at);
  }
  template <typename E>
  E *own(const Member &member, const Launch &launch, std::uint64_t at) const {
    return shared<E>(launch, shared_ + static_cast<std::uint64_t>(member.index) * own_ + at);
  }

 private:
  std::uint64_t shared_ = 0, own_ = 0;
};

}  // namespace protrain::backend::cpu
