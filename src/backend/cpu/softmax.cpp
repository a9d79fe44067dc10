// Softmax, LogSoftmax and their gradients. Lines along the axis are shared out; where they are not contiguous, they are
// copied to scratch and back.
#include "arith/math.h"
#include "backend/axes.h"
#include "backend/cpu/kernel.h"
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

// The lanes along the axis, and room for lines of them.
class Lines : public Lanes {
 public:
  explicit Lines(const KernelRequest &request) : Lanes(request, request.outputs[0].shape, -1) {}
  // Room for `copies` lines of each member, where lines are not contiguous.
  std::uint64_t scratch_bytes(int copies, int team_size) const {
    return inner == 1 ? 0 : checked_multiply(line_bytes(), static_cast<std::uint64_t>(copies * team_size));
  }
  // The member's copy number `copy` of `copies`.
  float *copy(const Launch &launch, const Member &member, int copies, int copy) const {
    const auto index = static_cast<std::uint64_t>(member.index * copies + copy);
    return reinterpret_cast<float *>(static_cast<std::byte *>(launch.scratch) + index * line_bytes());
  }
  void gather(const float *from, float *line) const {
    for (std::int64_t i = 0; i < length; ++i) line[i] = from[i * inner];
  }
  void scatter(const float *line, float *to) const {
    for (std::int64_t i = 0; i < length; ++i) to[i * inner] = line[i];
  }

 private:
  std::uint64_t line_bytes() const { return round_up(byte_count(DType::f32, {length}), kAlignment); }
};

class SoftmaxKernel : public CpuKernel {
 public:
  SoftmaxKernel(const KernelRequest &request, Line work, int team_size) : lines_(request), work_(work) {
    scratch_bytes = lines_.scratch_bytes(1, team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lines_.count, 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const float *x = input<float>(launch, 0) + lines_.begin(i);
      float *y = output<float>(launch, 0) + lines_.begin(i);
      if (lines_.inner == 1) {
        work_(x, y, lines_.length);
        continue;
      }
      float *line = lines_.copy(launch, member, 1, 0);
      lines_.gather(x, line);
      work_(line, line, lines_.length);
      lines_.scatter(line, y);
    }
  }

 private:
  const Lines lines_;
  const Line work_;
};

class SoftmaxGradKernel : public CpuKernel {
 public:
  SoftmaxGradKernel(const KernelRequest &request, GradLine work, int team_size) : lines_(request), work_(work) {
    scratch_bytes = lines_.scratch_bytes(2, team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(lines_.count, 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const float *dy = input<float>(launch, 0) + lines_.begin(i), *y = input<float>(launch, 1) + lines_.begin(i);
      float *dx = output<float>(launch, 0) + lines_.begin(i);
      if (lines_.inner == 1) {
        work_(dy, y, dx, lines_.length);
        continue;
      }
      float *dy_line = lines_.copy(launch, member, 2, 0), *y_line = lines_.copy(launch, member, 2, 1);
      lines_.gather(dy, dy_line);
      lines_.gather(y, y_line);
      work_(dy_line, y_line, dy_line, lines_.length);
      lines_.scatter(dy_line, dx);
    }
  }

 private:
  const Lines lines_;
  const GradLine work_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_softmax(const KernelRequest &request, int team_size) {
  require_dtype(request, request.inputs.at(0), DType::f32);
  return std::make_unique<SoftmaxKernel>(request, request.node.op == "Softmax" ? softmax_line : log_softmax_line,
                                         team_size);
}

std::unique_ptr<CpuKernel> make_softmax_grad(const KernelRequest &request, int team_size) {
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, DType::f32);
  return std::make_unique<SoftmaxGradKernel>(
      request, request.node.op == "SoftmaxGrad" ? softmax_grad_line : log_softmax_grad_line, team_size);
}

}  // namespace protrain::backend
