// Depthwise convolutions: each channel is a group with one map.
//
// A plane of x is padded and split into phases, so that neighbouring windows find the same element in neighbouring
// places, whatever the stride. Along an axis with stride s, phase p is a dense array of the elements p, p + s, p + 2 s,
// ... of the padded plane. Each phase has `extent` elements along an axis. Element k of window o lies at place o * s +
// k * dilation. This is element o + shift of phase k * dilation % s, where shift = k * dilation / s.
//
// Windows are numbered like the elements of a phase's array, whose rows can be longer than the rows of y. In that case
// the last numbers of each row have no window. With this numbering, y, dx and dw are sums over vectors that run on from
// row to row, and long vectors are fast.
#include <algorithm>

#include "arith/math.h"
#include "backend/common/clones.h"
#include "backend/cpu/conv.h"

namespace protrain::backend::cpu {

namespace {

constexpr std::int64_t kDotLanes = 16;

// An element of a window: the number of the phase that holds it, and its shift in that phase's array.
struct Tap {
  std::int64_t phase, shift;
};

template <int kCount>
struct TapLoops {
  // Computes to[i] += w[0] * x[0][i] + w[1] * x[1][i] + ... over kCount arrays x[t].
  PROTRAIN_CLONES static void add(const float *const *x, const float *w, float *to, std::int64_t count) {
    const float *from[kCount];
    float weights[kCount];
    for (int t = 0; t < kCount; ++t) {
      from[t] = x[t];
      weights[t] = w[t];
    }
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = to[i];
#pragma GCC unroll 9
      for (int t = 0; t < kCount; ++t) sum = arith::fma(weights[t], from[t][i], sum);
      to[i] = sum;
    }
  }
  // Adds the dot product of y and x[t] to sums[t]. Term i of the dot product belongs to lane i % kDotLanes.
  PROTRAIN_CLONES static void dot(const float *y, const float *const *x, std::int64_t count, double *sums) {
    float lanes[kCount][kDotLanes] = {};
    const std::int64_t whole = count / kDotLanes * kDotLanes;
    for (std::int64_t i = 0; i < whole; i += kDotLanes)
#pragma GCC unroll 3
      for (int t = 0; t < kCount; ++t)
        for (std::int64_t l = 0; l < kDotLanes; ++l) lanes[t][l] = arith::fma(y[i + l], x[t][i + l], lanes[t][l]);
    for (int t = 0; t < kCount; ++t)
      for (std::int64_t i = whole; i < count; ++i) lanes[t][i - whole] = arith::fma(y[i], x[t][i], lanes[t][i - whole]);
    for (int t = 0; t < kCount; ++t) {
      for (std::int64_t width = kDotLanes / 2; width > 0; width /= 2)
        for (std::int64_t l = 0; l < width; ++l) lanes[t][l] += lanes[t][l + width];
      sums[t] += static_cast<double>(lanes[t][0]);
    }
  }
};

// Computes to[i] = from[i * stride]. kStride is the stride if the compiler knows it, else 0.
template <int kStride>
struct ReadLoops {
  PROTRAIN_CLONES static void run(const float *from, std::int64_t stride, float *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * (kStride > 0 ? kStride : stride)];
  }
};

class DepthwiseConv : public CpuKernel {
 public:
  DepthwiseConv(const ConvShape &s, int team_size) : shape_(s) {
    for (std::size_t i = 0; i < kConvAxes; ++i)
      extent_[i] = s.output[i] + (s.kernel[i] - 1) * s.dilations[i] / s.strides[i];
    for (std::int64_t a = 0; a < s.kernel[0]; ++a)
      for (std::int64_t b = 0; b < s.kernel[1]; ++b)
        for (std::int64_t c = 0; c < s.kernel[2]; ++c) taps_.push_back(tap_of({a, b, c}));
    most_shift_ = taps_.back().shift;
    windows_ = ((s.output[0] - 1) * extent_[1] + s.output[1] - 1) * extent_[2] + s.output[2];
    from_.resize(static_cast<std::size_t>(team_size) * taps_.size());
    weights_.resize(from_.size());
    ScratchLayout own;
    x_at_ = own.take<float>(phases() * phase_elements());
    y_at_ = own.take<float>(most_shift_ + phase_elements());
    sums_at_ = own.take<double>(static_cast<std::int64_t>(taps_.size()));
    scratch_ = TeamScratch(0, own.total());
    scratch_bytes = scratch_.bytes(team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const bool weights = shape_.result == ConvOperand::w;
    const Range mine = share((weights ? 1 : shape_.samples) * shape_.channels, 1, member);
    for (std::int64_t plane = mine.begin; plane < mine.end; ++plane) {
      if (shape_.result == ConvOperand::y) make_y(member, launch, plane);
      if (shape_.result == ConvOperand::x) make_x(member, launch, plane);
      if (shape_.result == ConvOperand::w) make_w(member, launch, plane);
    }
  }

 private:
  std::int64_t phases() const { return ConvShape::count_of(shape_.strides); }
  std::int64_t phase_elements() const { return ConvShape::count_of(extent_); }
  Tap tap_of(const ConvSizes &element) const {
    Tap tap{};
    for (std::size_t i = 0; i < kConvAxes; ++i) {
      const std::int64_t distance = element[i] * shape_.dilations[i];
      tap.phase = tap.phase * shape_.strides[i] + distance % shape_.strides[i];
      tap.shift = tap.shift * extent_[i] + distance / shape_.strides[i];
    }
    return tap;
  }
  float *x_room(const Member &member, const Launch &launch) const { return scratch_.own<float>(member, launch, x_at_); }
  float *y_room(const Member &member, const Launch &launch) const { return scratch_.own<float>(member, launch, y_at_); }

  // Calls act(row, in_room, phase) for each row of each phase's array. `in_room` is the address of this row in `room`,
  // and `phase` is the array's phase along the last axis. All elements of this row come from one row of x. `row` is the
  // index in x of the first element of that row of x, or -1 if the array's row has only pads.
  template <typename Act>
  void each_row(float *room, Act act) const {
    const ConvShape &s = shape_;
    for (std::int64_t p = 0; p < s.strides[0]; ++p)
      for (std::int64_t q = 0; q < s.strides[1]; ++q)
        for (std::int64_t r = 0; r < s.strides[2]; ++r)
          for (std::int64_t e = 0; e < extent_[0]; ++e)
            for (std::int64_t f = 0; f < extent_[1]; ++f, room += extent_[2]) {
              const std::int64_t i = e * s.strides[0] + p - s.before[0], j = f * s.strides[1] + q - s.before[1];
              const bool exists = i >= 0 && i < s.input[0] && j >= 0 && j < s.input[1];
              act(exists ? (i * s.input[1] + j) * s.input[2] : -1, room, r);
            }
  }
  // A row of a phase's array consists of elements of x between pads. Returns the range of these elements. `phase` is
  // the array's phase along the last axis.
  Range inside(std::int64_t phase) const {
    const std::int64_t first = phase - shape_.before[2], stride = shape_.strides[2];
    const std::int64_t begin = first >= 0 ? 0 : (-first + stride - 1) / stride;
    const std::int64_t end = first >= shape_.input[2] ? 0 : (shape_.input[2] - 1 - first) / stride + 1;
    return {std::min(begin, extent_[2]), std::clamp(end, std::min(begin, extent_[2]), extent_[2])};
  }

  void split(const float *x, float *room) const {
    each_row(room, [&](std::int64_t row, float *to, std::int64_t phase) {
      if (row < 0) return static_cast<void>(std::fill_n(to, extent_[2], 0.0f));
      const Range range = inside(phase);
      const std::int64_t stride = shape_.strides[2];
      const float *from = x + row + phase - shape_.before[2] + range.begin * stride;
      std::fill_n(to, range.begin, 0.0f);
      if (stride == 1)
        std::copy_n(from, range.size(), to + range.begin);
      else if (stride == 2)
        ReadLoops<2>::run(from, stride, to + range.begin, range.size());
      else
        ReadLoops<0>::run(from, stride, to + range.begin, range.size());
      std::fill(to + range.end, to + extent_[2], 0.0f);
    });
  }
  void join(float *room, float *x) const {
    if (ConvShape::count_of(shape_.strides) > 1) std::fill_n(x, shape_.input_count(), 0.0f);
    each_row(room, [&](std::int64_t row, const float *from, std::int64_t phase) {
      if (row < 0) return;
      const Range range = inside(phase);
      const std::int64_t stride = shape_.strides[2];
      float *to = x + row + phase - shape_.before[2] + range.begin * stride;
      from += range.begin;
      if (stride == 1) return static_cast<void>(std::copy_n(from, range.size(), to));
      for (std::int64_t i = 0; i < range.size(); ++i) to[i * stride] = from[i];
    });
  }
  // Calls act(element, window) for each row of y, with the index of its first element and the number of its first
  // window.
  template <typename Act>
  void each_row_of_y(Act act) const {
    for (std::int64_t e = 0; e < shape_.output[0]; ++e)
      for (std::int64_t f = 0; f < shape_.output[1]; ++f)
        act((e * shape_.output[1] + f) * shape_.output[2], (e * extent_[1] + f) * extent_[2]);
  }
  // Copies y to `room` so that the element of window w is at place w. Returns the address of place 0. Places without a
  // window get 0. The most_shift_ places in front of place 0 get 0 too, because make_x() reads at w minus a shift.
  float *number(const float *y, float *room) const {
    std::fill_n(room, most_shift_ + phase_elements(), 0.0f);
    each_row_of_y(
        [&](std::int64_t from, std::int64_t to) { std::copy_n(y + from, shape_.output[2], room + most_shift_ + to); });
    return room + most_shift_;
  }

  // Divides `count` taps into groups of 9, 3 or 1, and calls loop(number of taps, first tap) for each group.
  template <typename Loop>
  static void in_groups(std::size_t count, Loop loop) {
    std::size_t i = 0;
    for (; i + 9 <= count; i += 9) loop(std::integral_constant<int, 9>{}, i);
    for (; i + 3 <= count; i += 3) loop(std::integral_constant<int, 3>{}, i);
    for (; i < count; ++i) loop(std::integral_constant<int, 1>{}, i);
  }

  void make_y(const Member &member, const Launch &launch, std::int64_t plane) {
    const std::int64_t channel = plane % shape_.channels, count = static_cast<std::int64_t>(taps_.size());
    float *room = x_room(member, launch), *sums = y_room(member, launch);
    const float **from = from_.data() + member.index * count;
    split(input<float>(launch, 0) + plane * shape_.input_count(), room);
    for (std::size_t t = 0; t < taps_.size(); ++t) from[t] = room + taps_[t].phase * phase_elements() + taps_[t].shift;
    std::fill_n(sums, windows_, 0.0f);
    const float *w = input<float>(launch, 1) + channel * count;
    in_groups(taps_.size(), [&]<int kCount>(std::integral_constant<int, kCount>, std::size_t first) {
      TapLoops<kCount>::add(from + first, w + first, sums, windows_);
    });
    float *y = output<float>(launch, 0) + plane * shape_.output_count();
    each_row_of_y(
        [&](std::int64_t to, std::int64_t at) { store_channel(sums + at, launch, channel, y + to, shape_.output[2]); });
  }

  void make_x(const Member &member, const Launch &launch, std::int64_t plane) {
    const std::int64_t channel = plane % shape_.channels, count = static_cast<std::int64_t>(taps_.size());
    float *room = x_room(member, launch);
    const float *y = number(input<float>(launch, 0) + plane * shape_.output_count(), y_room(member, launch));
    const float *w = input<float>(launch, 1) + channel * count;
    const float **from = from_.data() + member.index * count;
    float *weights = weights_.data() + member.index * count;
    std::fill_n(room, phases() * phase_elements(), 0.0f);
    for (std::int64_t phase = 0; phase < phases(); ++phase) {
      std::size_t own = 0;
      for (std::size_t t = 0; t < taps_.size(); ++t)
        if (taps_[t].phase == phase) {
          from[own] = y - taps_[t].shift;
          weights[own++] = w[t];
        }
      in_groups(own, [&]<int kCount>(std::integral_constant<int, kCount>, std::size_t first) {
        TapLoops<kCount>::add(from + first, weights + first, room + phase * phase_elements(), phase_elements());
      });
    }
    float *x = output<float>(launch, 0) + plane * shape_.input_count();
    join(room, x);
    if (shape_.bias) store_channel(x, launch, channel, x, shape_.input_count());
  }

  void make_w(const Member &member, const Launch &launch, std::int64_t channel) {
    const auto count = static_cast<std::int64_t>(taps_.size());
    float *room = x_room(member, launch);
    double *sums = scratch_.own<double>(member, launch, sums_at_);
    const float **from = from_.data() + member.index * count;
    std::fill_n(sums, count, 0.0);
    for (std::size_t t = 0; t < taps_.size(); ++t) from[t] = room + taps_[t].phase * phase_elements() + taps_[t].shift;
    for (std::int64_t sample = 0; sample < shape_.samples; ++sample) {
      const std::int64_t plane = sample * shape_.channels + channel;
      split(input<float>(launch, 0) + plane * shape_.input_count(), room);
      const float *y = number(input<float>(launch, 1) + plane * shape_.output_count(), y_room(member, launch));
      std::size_t t = 0;
      for (; t + 3 <= taps_.size(); t += 3) TapLoops<3>::dot(y, from + t, windows_, sums + t);
      for (; t < taps_.size(); ++t) TapLoops<1>::dot(y, from + t, windows_, sums + t);
    }
    float *w = output<float>(launch, 0) + channel * count;
    for (std::int64_t t = 0; t < count; ++t) w[t] = static_cast<float>(sums[t]);
  }

  const ConvShape shape_;
  ConvSizes extent_;                 // elements of a phase's array along each axis
  std::vector<Tap> taps_;            // one for each element of a window
  std::int64_t most_shift_ = 0;      // the largest shift of a tap
  std::int64_t windows_ = 0;         // how many numbers there are from the first window to the last
  std::vector<const float *> from_;  // one for each member and tap
  std::vector<float> weights_;       // one for each member and tap
  std::uint64_t x_at_, y_at_, sums_at_;
  TeamScratch scratch_;
};
}  // namespace

KernelPtr make_depthwise_conv(const ConvShape &shape, int team_size) {
  if (!shape.is_depthwise()) return nullptr;
  return std::make_unique<DepthwiseConv>(shape, team_size);
}

}  // namespace protrain::backend::cpu
