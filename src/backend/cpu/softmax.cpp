// Softmax, LogSoftmax and their gradients. Lines along the axis are shared out; where they are not contiguous float32,
// they are copied to scratch and back.
#include "arith/math.h"

#include <type_traits>

#include "backend/axes.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"
#include "base/shape.h"

namespace protrain::backend {

namespace {
// A line of `count`; `to` may be either operand.
using Line = void (*)(const float *x, float *y, std::int64_t count);
using GradLine = void (*)(const float *dy, const float *y, float *dx, std::int64_t count);

PROTRAIN_CLONES
void softmax_line(const float *x, float *y, std::int64_t count) {
  const float largest = lane_max(count, [x](std::int64_t i) { return x[i]; });
  const float sum = lane_sum(count, [x, y, largest](std::int64_t i) { return y[i] = arith::exp(x[i] - largest); });
  const float factor = 1.0f / sum;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) y[i] *= factor;
}

PROTRAIN_CLONES
void log_softmax_line(const float *x, float *y, std::int64_t count) {
  const float largest = lane_max(count, [x](std::int64_t i) { return x[i]; });
  const float sum = lane_sum(count, [x, largest](std::int64_t i) { return arith::exp(x[i] - largest); });
  const float log_sum = arith::log(sum);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] - largest - log_sum;
}

PROTRAIN_CLONES
void softmax_grad_line(const float *dy, const float *y, float *dx, std::int64_t count) {
  const float dot = lane_sum(count, [dy, y](std::int64_t i) { return dy[i] * y[i]; });
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) dx[i] = (dy[i] - dot) * y[i];
}

PROTRAIN_CLONES
void log_softmax_grad_line(const float *dy, const float *y, float *dx, std::int64_t count) {
  const float sum = lane_sum(count, [dy](std::int64_t i) { return dy[i]; });
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] - arith::exp(y[i]) * sum;
}

// The lanes along the axis, and room for lines of them in float32.
template <typename T>
class Lines : public Lanes {
 public:
  explicit Lines(const KernelRequest &request)
      : Lanes(request, request.outputs[0].shape, -1), in_place_(std::is_same_v<T, float> && inner == 1) {}
  // Room for `copies` lines of each member.
  std::uint64_t scratch_bytes(int copies, int team_size) const {
    return in_place_ ? 0 : checked_multiply(line_bytes(), static_cast<std::uint64_t>(copies * team_size));
  }
  // The member's room number `copy` of `copies`.
  float *room(const Launch &launch, const Member &member, int copies, int copy) const {
    const auto index = static_cast<std::uint64_t>(member.index * copies + copy);
    return reinterpret_cast<float *>(static_cast<std::byte *>(launch.scratch) + index * line_bytes());
  }
  // The line that begins at `from`, itself or in `room`.
  const float *read(const T *from, float *room) const {
    if constexpr (std::is_same_v<T, float>)
      if (in_place_) return from;
    if (inner == 1)
      widen(from, room, length);
    else
      for (std::int64_t i = 0; i < length; ++i) room[i] = widened(from[i * inner]);
    return room;
  }
  // Where the line that begins at `to` is computed: there, or in `room`, from where `write` takes it.
  float *place(T *to, float *room) const {
    if constexpr (std::is_same_v<T, float>)
      if (in_place_) return to;
    return room;
  }
  void write(const float *room, T *to) const {
    if (in_place_) return;
    if (inner == 1)
      narrow(room, to, length);
    else
      for (std::int64_t i = 0; i < length; ++i) to[i * inner] = narrowed<T>(room[i]);
  }

 private:
  std::uint64_t line_bytes() const { return round_up(byte_count(DType::f32, {length}), kAlignment); }

  bool in_place_;  // nothing is copied
};

template <typename T>
class SoftmaxKernel : public CpuKernel {
 public:
  SoftmaxKernel(const KernelRequest &request, Line work, int team_size) : lines_(request), work_(work) {
    scratch_bytes = lines_.scratch_bytes(1, team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lines_.count, 1, member);
    float *room = lines_.room(launch, member, 1, 0);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      T *y = output<T>(launch, 0) + lines_.begin(i);
      float *result = lines_.place(y, room);
      work_(lines_.read(input<T>(launch, 0) + lines_.begin(i), room), result, lines_.length);
      lines_.write(result, y);
    }
  }

 private:
  const Lines<T> lines_;
  const Line work_;
};

template <typename T>
class SoftmaxGradKernel : public CpuKernel {
 public:
  SoftmaxGradKernel(const KernelRequest &request, GradLine work, int team_size) : lines_(request), work_(work) {
    scratch_bytes = lines_.scratch_bytes(2, team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lines_.count, 1, member);
    float *dy_room = lines_.room(launch, member, 2, 0), *y_room = lines_.room(launch, member, 2, 1);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const T *dy = input<T>(launch, 0) + lines_.begin(i), *y = input<T>(launch, 1) + lines_.begin(i);
      T *dx = output<T>(launch, 0) + lines_.begin(i);
      float *result = lines_.place(dx, dy_room);
      work_(lines_.read(dy, dy_room), lines_.read(y, y_room), result, lines_.length);
      lines_.write(result, dx);
    }
  }

 private:
  const Lines<T> lines_;
  const GradLine work_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_softmax(const KernelRequest &request, int team_size) {
  const Line work = request.node.op == "Softmax" ? softmax_line : log_softmax_line;
  return make_by_float<SoftmaxKernel>(request, request.inputs.at(0), work, team_size);
}

std::unique_ptr<CpuKernel> make_softmax_grad(const KernelRequest &request, int team_size) {
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  const GradLine work = request.node.op == "SoftmaxGrad" ? softmax_grad_line : log_softmax_grad_line;
  return make_by_float<SoftmaxGradKernel>(request, request.inputs.at(0), work, team_size);
}

}  // namespace protrain::backend
