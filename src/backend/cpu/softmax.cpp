// Softmax, LogSoftmax and their gradients. Members share the lines along the axis. A line that is not contiguous
// float32 is first converted in scratch, and its result is converted back.
#include "arith/math.h"

#include "backend/common/axes.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"

namespace protrain::backend::cpu {

namespace {
// Functions that compute a line of `count` elements. The result may overwrite an operand.
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

template <typename T>
class SoftmaxKernel : public CpuKernel {
 public:
  SoftmaxKernel(const KernelRequest &request, Line work, int team_size)
      : lines_(request, request.outputs[0].shape, -1), rows_(lines_.length, lines_.inner, 1), work_(work) {
    scratch_bytes = rows_.scratch_bytes(members_at_work(lines_.count, team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lines_.count, 1, member);
    float *room = rows_.room(launch.scratch, member, 0);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      T *y = output<T>(launch, 0) + lines_.begin(i);
      float *to = rows_.place(y, room);
      work_(rows_.read(input<T>(launch, 0) + lines_.begin(i), room), to, lines_.length);
      rows_.write(to, y);
    }
  }

 private:
  const AxisLines lines_;
  const FloatRows<T> rows_;
  const Line work_;
};

template <typename T>
class SoftmaxGradKernel : public CpuKernel {
 public:
  SoftmaxGradKernel(const KernelRequest &request, GradLine work, int team_size)
      : lines_(request, request.outputs[0].shape, -1), rows_(lines_.length, lines_.inner, 2), work_(work) {
    scratch_bytes = rows_.scratch_bytes(members_at_work(lines_.count, team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lines_.count, 1, member);
    float *dy_room = rows_.room(launch.scratch, member, 0), *y_room = rows_.room(launch.scratch, member, 1);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const T *dy = input<T>(launch, 0) + lines_.begin(i), *y = input<T>(launch, 1) + lines_.begin(i);
      T *dx = output<T>(launch, 0) + lines_.begin(i);
      float *to = rows_.place(dx, dy_room);
      work_(rows_.read(dy, dy_room), rows_.read(y, y_room), to, lines_.length);
      rows_.write(to, dx);
    }
  }

 private:
  const AxisLines lines_;
  const FloatRows<T> rows_;
  const GradLine work_;
};
}  // namespace

KernelPtr make_softmax(const KernelRequest &request, int team_size) {
  const Line work = request.node.op == "Softmax" ? softmax_line : log_softmax_line;
  return make_by_float<SoftmaxKernel>(request, request.inputs.at(0), work, team_size);
}

KernelPtr make_softmax_grad(const KernelRequest &request, int team_size) {
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  const GradLine work = request.node.op == "SoftmaxGrad" ? softmax_grad_line : log_softmax_grad_line;
  return make_by_float<SoftmaxGradKernel>(request, request.inputs.at(0), work, team_size);
}

}  // namespace protrain::backend::cpu
