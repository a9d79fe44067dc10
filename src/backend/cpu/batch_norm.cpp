// BatchNorm, its gradient, and the kernels that update running statistics. Members share the channels, or parts of
// channels if there are few channels. A member reads a part twice: first for its sums, and then for the result. The
// second time the part is usually still in the cache.
//   The data of a channel are rows of `inner` elements. Long rows of float32 are used where they lie. Otherwise the
// rows of a part are copied into one float32 row in the member's scratch. This row is called a room. Results are
// computed in rooms too, and then converted back.
#include <algorithm>
#include <cmath>

#include "arith/statistics.h"
#include "backend/common/channels.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"

namespace protrain::backend::cpu {

namespace {
using arith::Moments;

constexpr std::int64_t kEnoughParts = 64;      // parts of all channels together
constexpr std::int64_t kLongRow = 2 * kLanes;  // shorter rows are joined to one
constexpr std::int64_t kRun = 4096;            // elements that are summed in float32; sums of runs are joined in double

PROTRAIN_CLONES Moments moments_of(const float *x, std::int64_t count) {
  const float mean = lane_sum(count, [x](std::int64_t i) { return x[i]; }) / static_cast<float>(count);
  const float squares = lane_sum(count, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return {static_cast<double>(count), static_cast<double>(mean), static_cast<double>(squares)};
}

PROTRAIN_CLONES void normalize(const float *x, float *y, std::int64_t count, float mean, float factor, float bias) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor + bias;
}

// Two sums over some elements of a channel: the sum of dy, and the sum of dy * (x - mean).
struct GradSums {
  double dy = 0, dot = 0;
};

PROTRAIN_CLONES GradSums grad_sums_of(const float *dy, const float *x, std::int64_t count, float mean) {
  return {lane_sum(count, [dy](std::int64_t i) { return dy[i]; }),
          lane_sum(count, [dy, x, mean](std::int64_t i) { return dy[i] * (x[i] - mean); })};
}

// The numbers from which the gradient of a channel's x is computed: dx = factor * (dy - shift - (x - mean) * slope).
struct GradTerms {
  float mean, factor, shift, slope;
};

PROTRAIN_CLONES void apply_grad(const float *dy, const float *x, float *dx, std::int64_t count, const GradTerms &t) {
  const GradTerms own = t;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) dx[i] = own.factor * (dy[i] - own.shift - (x[i] - own.mean) * own.slope);
}

// Cuts a row into runs of at most kRun elements. Calls act(first element, number of elements) for each run.
template <typename Act>
void each_run(std::int64_t length, Act &&act) {
  for (std::int64_t first = 0; first < length; first += kRun) act(first, std::min(kRun, length - first));
}

// The data of a part of a channel as float32 rows: either rows of the tensor itself, or one row in a scratch buffer (a
// room) into which the part is copied.
template <typename T>
class Rows {
 public:
  explicit Rows(const ChannelParts &channels)
      : channels_(channels),
        in_place_(std::is_same_v<T, float> && channels.inner >= kLongRow),
        room_bytes_(round_up(byte_count(DType::f32, {channels.part * channels.inner}), kAlignment)) {}

  // Returns the size of the scratch buffer into which a part of one tensor is copied; 0 if rows are used in place.
  std::uint64_t room_bytes() const { return in_place_ ? 0 : room_bytes_; }
  std::int64_t count(std::int64_t part) const { return in_place_ ? channels_.samples_in(part) : 1; }
  std::int64_t length(std::int64_t part) const {
    return in_place_ ? channels_.inner : channels_.samples_in(part) * channels_.inner;
  }

  // Converts a part of x to one float32 row in `room`. Does nothing if rows are used where they lie.
  void read(const T *x, std::int64_t channel, std::int64_t part, float *room) const {
    if (in_place_) return;
    each_sample(part, [&](std::int64_t sample, std::int64_t at) {
      const T *from = x + channels_.begin(sample, channel);
      if (channels_.inner >= kLongRow) return widen(from, room + at, channels_.inner);
      for (std::int64_t i = 0; i < channels_.inner; ++i) room[at + i] = widened(from[i]);
    });
  }
  // Converts a part's results from `room` to y. Does nothing if they were computed in y itself.
  void write(const float *room, std::int64_t channel, std::int64_t part, T *y) const {
    if (in_place_) return;
    each_sample(part, [&](std::int64_t sample, std::int64_t at) {
      T *to = y + channels_.begin(sample, channel);
      if (channels_.inner >= kLongRow) return narrow(room + at, to, channels_.inner);
      for (std::int64_t i = 0; i < channels_.inner; ++i) to[i] = narrowed<T>(room[at + i]);
    });
  }
  // Returns row number `row` of a part. If rows are used where they lie, this row is in the tensor x. If not, it is
  // `room`, the part's only row. V is T or const T.
  template <typename V, typename F>
  F *row(V *x, std::int64_t channel, std::int64_t part, std::int64_t row, F *room) const {
    if constexpr (std::is_same_v<T, float>)
      if (in_place_) return x + channels_.begin(part * channels_.part + row, channel);
    return room;
  }

 private:
  template <typename Act>
  void each_sample(std::int64_t part, Act &&act) const {
    for (std::int64_t i = 0; i < channels_.samples_in(part); ++i) act(part * channels_.part + i, i * channels_.inner);
  }

  const ChannelParts &channels_;
  const bool in_place_;
  const std::uint64_t room_bytes_;
};

// Calls first(channel, part) and then second(channel, part, is_read) for each part of each channel. When second() runs,
// first() has finished for all parts of the channel. `is_read` is true if scratch still holds what first() read.
template <typename First, typename Second>
void in_two_passes(const ChannelParts &channels, Member &member, First &&first, Second &&second) {
  const Range mine = share(channels.count * channels.parts, 1, member);
  const auto each = [&](auto &&act) {
    for (std::int64_t i = mine.begin; i < mine.end; ++i) act(i / channels.parts, i % channels.parts);
  };
  if (channels.parts == 1) {
    each([&](std::int64_t channel, std::int64_t part) {
      first(channel, part);
      second(channel, part, true);
    });
    return;
  }
  each(first);
  member.barrier();
  each([&](std::int64_t channel, std::int64_t part) { second(channel, part, false); });
}

// The scratch of BatchNorm or its gradient. It holds the result of the first pass (a Found) for each part of each
// channel. It also holds, for each member, `rooms` buffers of the size Rows::room_bytes().
template <typename T, typename Found>
class Scratch {
 public:
  Scratch(const ChannelParts &channels, const Rows<T> &rows, int rooms)
      : parts_(channels.parts),
        room_bytes_(rows.room_bytes()),
        rooms_at_(round_up(static_cast<std::uint64_t>(channels.count * channels.parts) * sizeof(Found), kAlignment)),
        rooms_(static_cast<std::uint64_t>(rooms)) {}

  std::uint64_t bytes(int team_size) const {
    return checked_add(rooms_at_, checked_multiply(room_bytes_, rooms_ * static_cast<std::uint64_t>(team_size)));
  }
  Found *of_channel(const Launch &launch, std::int64_t channel) const {
    return static_cast<Found *>(launch.scratch) + channel * parts_;
  }
  float *room(const Launch &launch, const Member &member, std::uint64_t number) const {
    const std::uint64_t index = static_cast<std::uint64_t>(member.index) * rooms_ + number;
    return reinterpret_cast<float *>(static_cast<std::byte *>(launch.scratch) + rooms_at_ + index * room_bytes_);
  }

 private:
  std::int64_t parts_;
  std::uint64_t room_bytes_, rooms_at_, rooms_;
};

template <typename T>
class BatchNorm : public CpuKernel {
 public:
  BatchNorm(const KernelRequest &request, int team_size)
      : channels_(request.inputs.at(0).shape, kEnoughParts),
        rows_(channels_),
        scratch_(channels_, rows_, 1),
        epsilon_(request.node.attributes.real("epsilon", 1e-5)),
        running_(request.node.attributes.integer("running", 0) != 0),
        unbiased_(request.node.attributes.integer("unbiased", 0) != 0) {
    scratch_bytes = scratch_.bytes(team_size);
  }

  void run(Member &member, const Launch &launch) override {
    float *room = scratch_.room(launch, member, 0);
    const auto read = [&](std::int64_t channel, std::int64_t part) {
      rows_.read(input<T>(launch, 0), channel, part, room);
    };
    const auto first = [&](std::int64_t channel, std::int64_t part) {
      read(channel, part);
      if (!running_) scratch_.of_channel(launch, channel)[part] = moments(launch, channel, part, room);
    };
    in_two_passes(channels_, member, first, [&](std::int64_t channel, std::int64_t part, bool is_read) {
      const Statistics found = statistics(launch, channel);
      if (part == 0) note(launch, channel, found);
      T *y = optional_output<T>(launch, 0);
      if (y == nullptr) return;
      if (!is_read) read(channel, part);
      const float factor = static_cast<float>(static_cast<double>(widened(input<T>(launch, 1)[channel])) /
                                              std::sqrt(static_cast<double>(found.variance) + epsilon_));
      const float bias = widened(input<T>(launch, 2)[channel]);
      for (std::int64_t row = 0; row < rows_.count(part); ++row)
        normalize(rows_.row(input<T>(launch, 0), channel, part, row, static_cast<const float *>(room)),
                  rows_.row(y, channel, part, row, room), rows_.length(part), found.mean, factor, bias);
      rows_.write(room, channel, part, y);
    });
  }

 private:
  struct Statistics {
    float mean, variance, kept;
  };

  Moments moments(const Launch &launch, std::int64_t channel, std::int64_t part, const float *room) const {
    Moments found;
    for (std::int64_t row = 0; row < rows_.count(part); ++row) {
      const float *x = rows_.row(input<T>(launch, 0), channel, part, row, room);
      each_run(rows_.length(part),
               [&](std::int64_t first, std::int64_t count) { found.join(moments_of(x + first, count)); });
    }
    return found;
  }

  // Returns the mean and the variance that normalize the channel, and in `kept` the variance with which the running
  // variance is updated.
  Statistics statistics(const Launch &launch, std::int64_t channel) const {
    if (running_) {
      const float variance = input<float>(launch, 4)[channel];
      return {input<float>(launch, 3)[channel], variance, variance};
    }
    const Moments *parts = scratch_.of_channel(launch, channel);
    Moments all;
    for (std::int64_t part = 0; part < channels_.parts; ++part) all.join(parts[part]);
    return {static_cast<float>(all.mean), static_cast<float>(all.squares / all.count),
            static_cast<float>(all.squares / (unbiased_ ? all.count - 1 : all.count))};
  }

  static void note(const Launch &launch, std::int64_t channel, const Statistics &found) {
    const float values[] = {found.mean, found.variance, found.kept};
    for (std::size_t i = 0; i < 3; ++i)
      if (auto *to = optional_output<float>(launch, i + 1)) to[channel] = values[i];
  }

  const ChannelParts channels_;
  const Rows<T> rows_;
  const Scratch<T, Moments> scratch_;
  const double epsilon_;
  const bool running_, unbiased_;
};

template <typename T>
class BatchNormGrad : public CpuKernel {
 public:
  BatchNormGrad(const KernelRequest &request, int team_size)
      : channels_(request.inputs.at(1).shape, kEnoughParts),
        rows_(channels_),
        scratch_(channels_, rows_, 2),
        epsilon_(request.node.attributes.real("epsilon", 1e-5)) {
    scratch_bytes = scratch_.bytes(team_size);
  }

  void run(Member &member, const Launch &launch) override {
    float *dy_room = scratch_.room(launch, member, 0), *x_room = scratch_.room(launch, member, 1);
    const auto read = [&](std::int64_t channel, std::int64_t part) {
      rows_.read(input<T>(launch, 0), channel, part, dy_room);
      rows_.read(input<T>(launch, 1), channel, part, x_room);
    };
    const auto first = [&](std::int64_t channel, std::int64_t part) {
      read(channel, part);
      GradSums &sums = scratch_.of_channel(launch, channel)[part] = {};
      each_row(launch, channel, part, dy_room, x_room, [&](const float *dy, const float *x, std::int64_t) {
        each_run(rows_.length(part), [&](std::int64_t begin, std::int64_t count) {
          const GradSums run = grad_sums_of(dy + begin, x + begin, count, input<float>(launch, 3)[channel]);
          sums = {sums.dy + run.dy, sums.dot + run.dot};
        });
      });
    };
    in_two_passes(channels_, member, first, [&](std::int64_t channel, std::int64_t part, bool is_read) {
      const GradTerms terms = finish(launch, channel, part == 0);
      T *dx = optional_output<T>(launch, 0);
      if (dx == nullptr) return;
      if (!is_read) read(channel, part);
      each_row(launch, channel, part, dy_room, x_room, [&](const float *dy, const float *x, std::int64_t row) {
        apply_grad(dy, x, rows_.row(dx, channel, part, row, dy_room), rows_.length(part), terms);
      });
      rows_.write(dy_room, channel, part, dx);
    });
  }

 private:
  template <typename Act>
  void each_row(const Launch &launch, std::int64_t channel, std::int64_t part, const float *dy_room,
                const float *x_room, Act &&act) const {
    for (std::int64_t row = 0; row < rows_.count(part); ++row)
      act(rows_.row(input<T>(launch, 0), channel, part, row, dy_room),
          rows_.row(input<T>(launch, 1), channel, part, row, x_room), row);
  }

  // Adds up the sums of a channel's parts, and returns the numbers from which dx is computed. If `notes` is true, also
  // stores the gradients of the channel's scale and bias.
  GradTerms finish(const Launch &launch, std::int64_t channel, bool notes) const {
    GradSums all;
    for (std::int64_t part = 0; part < channels_.parts; ++part) {
      const GradSums &sums = scratch_.of_channel(launch, channel)[part];
      all = {all.dy + sums.dy, all.dot + sums.dot};
    }
    const double n = static_cast<double>(channels_.elements());
    const double inverse = 1 / std::sqrt(static_cast<double>(input<float>(launch, 4)[channel]) + epsilon_);
    if (T *dscale = optional_output<T>(launch, 1); notes && dscale != nullptr)
      dscale[channel] = narrowed<T>(static_cast<float>(all.dot * inverse));
    if (T *dbias = optional_output<T>(launch, 2); notes && dbias != nullptr)
      dbias[channel] = narrowed<T>(static_cast<float>(all.dy));
    return {.mean = input<float>(launch, 3)[channel],
            .factor = static_cast<float>(static_cast<double>(widened(input<T>(launch, 2)[channel])) * inverse),
            .shift = static_cast<float>(all.dy / n),
            .slope = static_cast<float>(all.dot * inverse * inverse / n)};
  }

  const ChannelParts channels_;
  const Rows<T> rows_;
  const Scratch<T, GradSums> scratch_;
  const double epsilon_;
};

// FoldStatistics and AccumulateStatistics. They update a running mean or variance (the state) with the statistics of
// batches.
//   FoldStatistics(state, statistics...) starts from the state. AccumulateStatistics(result so far, state,
// statistics...) starts from the state in a step's first micro-batch, and from the result so far in later ones. The
// result so far is the same memory as outputs[0].
class FoldStatistics : public CpuKernel {
 public:
  explicit FoldStatistics(const KernelRequest &request)
      : first_(request.node.op == "FoldStatistics" ? 1 : 2),
        momentum_(arith::momentum_of(request.node.attributes.real("momentum", 0.9))),
        parts_(request.node.attributes.integer("parts", 1)),
        count_(element_count(request.outputs.at(0).shape)) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f32);
  }

  void run(Member &member, const Launch &launch) override {
    float *to = output<float>(launch, 0);
    const bool begins = first_ == 1 || launch.scalars->micro_batch == 0;
    const float *from = begins ? input<float>(launch, first_ - 1) : to;
    const Range mine = share(count_, kLanes, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      float running = from[i];
      for (std::int64_t part = 0; part < parts_; ++part)
        for (std::size_t s = first_; s < launch.inputs.size(); ++s)
          running = arith::folded(momentum_, running, input<float>(launch, s)[part * count_ + i]);
      to[i] = running;
    }
  }

 private:
  const std::size_t first_;  // number of the first input that is a statistic
  const arith::Momentum momentum_;
  const std::int64_t parts_, count_;
};
}  // namespace

KernelPtr make_batch_norm(const KernelRequest &request, int team_size) {
  return make_by_float<BatchNorm>(request, request.inputs.at(0), team_size);
}

KernelPtr make_batch_norm_grad(const KernelRequest &request, int team_size) {
  return make_by_float<BatchNormGrad>(request, request.inputs.at(0), team_size);
}

KernelPtr make_fold_statistics(const KernelRequest &request, int) { return std::make_unique<FoldStatistics>(request); }

}  // namespace protrain::backend::cpu
