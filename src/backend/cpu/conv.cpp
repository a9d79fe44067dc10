// The kernels of Conv, ConvTranspose and ConvWeightGrad. This file chooses among the methods of conv.h, and has the
// method that unrolls windows (im2col).
//
// Let a window have K elements. The matrix `columns` (C * K, windows) has a row for each of C channels and each element
// of a window, and a column for each window. With w (M, C * K) and y (M, windows), y = w columns and dw = dy columns^T.
// The columns of dx are w^T dy. Only a part of `columns` exists at a time, so that this part stays in the cache. In
// Conv the part is for the windows of some rows of y (lines along the last axis). In ConvTranspose and ConvWeightGrad
// it is for some channels of x.
#include "backend/cpu/conv.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/floats.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kColumnsBytes = 1 << 20;  // most bytes of columns that are unrolled at a time

// Returns the windows of a row of y in which element k, along the last axis, lies inside of x. In the row's other
// windows element k is a pad.
Range inside(const ConvShape &s, std::int64_t k) {
  const std::int64_t first = k * s.dilations[2] - s.before[2];  // the element's place for the first window
  const std::int64_t begin = first >= 0 ? 0 : (-first + s.strides[2] - 1) / s.strides[2];
  const std::int64_t end = first >= s.input[2] ? 0 : (s.input[2] - 1 - first) / s.strides[2] + 1;
  return {std::min(begin, s.output[2]), std::max(std::min(end, s.output[2]), std::min(begin, s.output[2]))};
}

// Calls act(at, range) for each position in the kernel and each row of y in `rows`. Each element o of this row has a
// window of x. At this position of the kernel, the window holds x[at + o * stride] if o lies in `range`, else a pad.
template <typename Act>
void each_row(const ConvShape &s, Range rows, Act act) {
  for (std::int64_t a = 0; a < s.kernel[0]; ++a)
    for (std::int64_t b = 0; b < s.kernel[1]; ++b)
      for (std::int64_t k = 0; k < s.kernel[2]; ++k) {
        const Range whole = inside(s, k);
        const std::int64_t shift = k * s.dilations[2] - s.before[2];
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
          const std::int64_t i = row / s.output[1] * s.strides[0] + a * s.dilations[0] - s.before[0];
          const std::int64_t j = row % s.output[1] * s.strides[1] + b * s.dilations[1] - s.before[1];
          const bool exists = i >= 0 && i < s.input[0] && j >= 0 && j < s.input[1];
          act((i * s.input[1] + j) * s.input[2] + shift, exists ? whole : Range{});
        }
      }
}

// Unrolls windows (im2col): writes a part of the matrix `columns`. The part is for `channels` channels, which begin at
// address x, and for the windows of the rows `rows` of y.
void unroll(const ConvShape &s, const float *x, std::int64_t channels, Range rows, float *columns) {
  const std::int64_t width = s.output[2], stride = s.strides[2];
  for (std::int64_t c = 0; c < channels; ++c, x += s.input_count())
    each_row(s, rows, [&](std::int64_t at, Range range) {
      std::fill(columns, columns + range.begin, 0.0f);
      if (stride == 1 && range.size() > 0)
        std::memcpy(columns + range.begin, x + at + range.begin,
                    static_cast<std::size_t>(range.size()) * sizeof(float));
      else
        for (std::int64_t i = range.begin; i < range.end; ++i) columns[i] = x[at + i * stride];
      std::fill(columns + range.end, columns + width, 0.0f);
      columns += width;
    });
}

// Reverses unroll() (col2im). unroll() copies elements of x to `columns`; roll_up() adds each element of `columns` to
// the element of x that it comes from.
void roll_up(const ConvShape &s, const float *columns, std::int64_t channels, float *x) {
  const std::int64_t width = s.output[2], stride = s.strides[2];
  for (std::int64_t c = 0; c < channels; ++c, x += s.input_count())
    each_row(s, {0, s.output[0] * s.output[1]}, [&](std::int64_t at, Range range) {
      for (std::int64_t i = range.begin; i < range.end; ++i) x[at + i * stride] += columns[i];
      columns += width;
    });
}

// The base of the kernels that unroll windows. Such a kernel works on one part at a time: some rows of y, or some
// channels of x. It unrolls the part to columns, and multiplies the columns. The last part can be smaller than the
// others, so there are two products, one for each size. Each member has a copy of both products, and scratch for
// columns, for sums and for a product.
class Unrolled : public CpuKernel {
 protected:
  explicit Unrolled(const ConvShape &shape) : shape_(shape) {}

  // Makes the products and lays out scratch. `last` is the product of the last part, `whole` that of every other part.
  // `columns` and `sums` are numbers of elements in each member's scratch. `shared` is the number of bytes that the
  // team shares.
  void prepare(int team_size, const GemmShape &whole, const GemmShape &last, std::int64_t columns, std::int64_t sums,
               std::uint64_t shared = 0) {
    for (int i = 0; i < team_size; ++i) {
      whole_.emplace_back(whole, 1);
      last_.emplace_back(last, 1);
    }
    ScratchLayout own;
    columns_at_ = own.take<float>(columns);
    sums_at_ = own.take<float>(sums);
    product_at_ = own.bytes(std::max(whole_[0].scratch_bytes(), last_[0].scratch_bytes()));
    scratch_ = TeamScratch(shared, own.total());
    scratch_bytes = scratch_.bytes(team_size);
  }
  float *columns(const Member &member, const Launch &launch) const {
    return scratch_.own<float>(member, launch, columns_at_);
  }
  float *sums(const Member &member, const Launch &launch) const {
    return scratch_.own<float>(member, launch, sums_at_);
  }
  void multiply(const Member &member, const Launch &launch, bool whole, const GemmOperands &operands) {
    Gemm &gemm = (whole ? whole_ : last_)[static_cast<std::size_t>(member.index)];
    gemm.run(Member(0, 1, nullptr), operands, scratch_.own<void>(member, launch, product_at_));
  }

  std::int64_t row_elements() const { return shape_.channels_in_group() * shape_.kernel_count(); }  // in w
  const float *of_x(const float *x, std::int64_t sample, std::int64_t channel) const {
    return x + (sample * shape_.channels + channel) * shape_.input_count();
  }
  const float *of_y(const float *y, std::int64_t sample, std::int64_t map) const {
    return y + (sample * shape_.maps + map) * shape_.output_count();
  }
  // Returns how many channels of a group are unrolled at a time.
  std::int64_t channels_at_a_time() const {
    const std::int64_t bytes = shape_.kernel_count() * shape_.output_count() * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t wanted = std::max<std::int64_t>(1, kColumnsBytes / std::max<std::int64_t>(bytes, 1));
    const std::int64_t parts = (shape_.channels_in_group() - 1) / wanted + 1;
    return (shape_.channels_in_group() - 1) / parts + 1;
  }

  const ConvShape shape_;

 private:
  std::vector<Gemm> whole_, last_;  // one for each member
  std::uint64_t columns_at_ = 0, sums_at_ = 0, product_at_ = 0;
  TeamScratch scratch_;
};

// Computes Conv. A unit of work is some rows of y for the maps of one group in one sample.
class UnrolledConv : public Unrolled {
 public:
  UnrolledConv(const ConvShape &s, int team_size)
      : Unrolled(s), rows_(s.output[0] * s.output[1]), rows_at_a_time_(at_a_time(s)) {
    prepare(team_size, product(rows_at_a_time_), product(rows_ % rows_at_a_time_),
            row_elements() * rows_at_a_time_ * s.output[2], s.maps_in_group() * rows_at_a_time_ * s.output[2]);
  }

  void run(Member &member, const Launch &launch) override {
    const ConvShape &s = shape_;
    const std::int64_t parts = (rows_ - 1) / rows_at_a_time_ + 1, groups = s.samples * s.groups;
    const Range mine = share(groups * parts, 1, member);
    float *columns = this->columns(member, launch), *sums = this->sums(member, launch);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t sample = i / parts / s.groups, group = i / parts % s.groups,
                         first = i % parts * rows_at_a_time_;
      const Range rows = {first, std::min(first + rows_at_a_time_, rows_)};
      unroll(s, of_x(input<float>(launch, 0), sample, group * s.channels_in_group()), s.channels_in_group(), rows,
             columns);
      const float *w = input<float>(launch, 1) + group * s.maps_in_group() * row_elements();
      multiply(member, launch, rows.size() == rows_at_a_time_, {w, columns, sums});
      const std::int64_t count = rows.size() * s.output[2];
      for (std::int64_t m = 0; m < s.maps_in_group(); ++m) {
        const std::int64_t map = group * s.maps_in_group() + m;
        float *y = const_cast<float *>(of_y(output<float>(launch, 0), sample, map)) + rows.begin * s.output[2];
        store_channel(sums + m * count, launch, map, y, count);
      }
    }
  }

 private:
  static std::int64_t at_a_time(const ConvShape &s) {
    const std::int64_t rows = s.output[0] * s.output[1];
    const std::int64_t bytes =
        s.channels_in_group() * s.kernel_count() * s.output[2] * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t wanted = std::clamp<std::int64_t>(kColumnsBytes / std::max<std::int64_t>(bytes, 1), 1, rows);
    return (rows - 1) / ((rows - 1) / wanted + 1) + 1;
  }
  GemmShape product(std::int64_t rows) const {
    return {.m = shape_.maps_in_group(), .n = rows * shape_.output[2], .k = row_elements()};
  }

  const std::int64_t rows_, rows_at_a_time_;
};

// Computes ConvTranspose, whose result is called x. A unit of work is some channels of one group in one sample of x.
// The columns of these channels are the product of some rows of w^T with y. roll_up() adds these columns up to x.
class UnrolledTranspose : public Unrolled {
 public:
  UnrolledTranspose(const ConvShape &s, int team_size) : Unrolled(s), channels_(channels_at_a_time()) {
    prepare(team_size, product(channels_), product(s.channels_in_group() % channels_),
            channels_ * s.kernel_count() * s.output_count(), channels_ * s.input_count(),
            static_cast<std::uint64_t>(s.maps * row_elements()) * sizeof(float));
  }

  void run(Member &member, const Launch &launch) override {
    const ConvShape &s = shape_;
    const std::int64_t parts = (s.channels_in_group() - 1) / channels_ + 1, maps = s.maps_in_group();
    const std::int64_t row = row_elements();
    float *transposed = static_cast<float *>(launch.scratch);
    const Range rows = share(s.groups * row, 1, member);
    for (std::int64_t i = rows.begin; i < rows.end;) {  // each member transposes some columns of groups of w
      const std::int64_t group = i / row, begin = i % row, end = std::min(row, begin + rows.end - i);
      transpose<float>({input<float>(launch, 1) + group * maps * row + begin, row}, maps, end - begin,
                       {transposed + (group * row + begin) * maps, maps});
      i += end - begin;
    }
    member.barrier();
    const Range mine = share(s.samples * s.groups * parts, 1, member);
    float *columns = this->columns(member, launch), *sums = this->sums(member, launch);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t sample = i / parts / s.groups, group = i / parts % s.groups, first = i % parts * channels_;
      const std::int64_t count = std::min(channels_, s.channels_in_group() - first);
      const float *w = transposed + (group * row + first * s.kernel_count()) * maps;
      multiply(member, launch, count == channels_, {w, of_y(input<float>(launch, 0), sample, group * maps), columns});
      std::fill_n(sums, count * s.input_count(), 0.0f);
      roll_up(s, columns, count, sums);
      for (std::int64_t c = 0; c < count; ++c) {
        const std::int64_t channel = group * s.channels_in_group() + first + c;
        store_channel(sums + c * s.input_count(), launch, channel,
                      const_cast<float *>(of_x(output<float>(launch, 0), sample, channel)), s.input_count());
      }
    }
  }

 private:
  GemmShape product(std::int64_t channels) const {
    return {.m = channels * shape_.kernel_count(), .n = shape_.output_count(), .k = shape_.maps_in_group()};
  }

  const std::int64_t channels_;  // how many are unrolled at a time
};

// Computes ConvWeightGrad. A unit of work is the gradient of the weights for some channels of one group, summed over
// all samples from the first to the last.
class UnrolledWeights : public Unrolled {
 public:
  UnrolledWeights(const ConvShape &s, int team_size) : Unrolled(s), channels_(channels_at_a_time()) {
    prepare(team_size, product(channels_), product(s.channels_in_group() % channels_),
            channels_ * s.kernel_count() * s.output_count(), channels_ * s.kernel_count() * s.maps_in_group());
  }

  void run(Member &member, const Launch &launch) override {
    const ConvShape &s = shape_;
    const std::int64_t parts = (s.channels_in_group() - 1) / channels_ + 1, maps = s.maps_in_group();
    const Range mine = share(s.groups * parts, 1, member);
    float *columns = this->columns(member, launch), *sums = this->sums(member, launch);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t group = i / parts, first = i % parts * channels_;
      const std::int64_t count = std::min(channels_, s.channels_in_group() - first), width = count * s.kernel_count();
      std::fill_n(sums, maps * width, 0.0f);
      for (std::int64_t sample = 0; sample < s.samples; ++sample) {
        unroll(s, of_x(input<float>(launch, 0), sample, group * s.channels_in_group() + first), count,
               {0, s.output[0] * s.output[1]}, columns);
        multiply(member, launch, count == channels_,
                 {of_y(input<float>(launch, 1), sample, group * maps), columns, sums});
      }
      float *to = output<float>(launch, 0) + group * maps * row_elements() + first * s.kernel_count();
      for (std::int64_t m = 0; m < maps; ++m) std::copy_n(sums + m * width, width, to + m * row_elements());
    }
  }

 private:
  GemmShape product(std::int64_t channels) const {
    return {.m = shape_.maps_in_group(),
            .n = channels * shape_.kernel_count(),
            .k = shape_.output_count(),
            .trans_b = true,
            .accumulate = true};
  }

  const std::int64_t channels_;  // how many are unrolled at a time
};
}  // namespace

KernelPtr make_unrolled_conv(const ConvShape &shape, int team_size) {
  if (shape.result == ConvOperand::y) return std::make_unique<UnrolledConv>(shape, team_size);
  if (shape.result == ConvOperand::x) return std::make_unique<UnrolledTranspose>(shape, team_size);
  return std::make_unique<UnrolledWeights>(shape, team_size);
}

namespace {
// Returns true if the windows spread over far more places than x, w and y have elements: nearly all places are pads, or
// elements that strides and dilations skip. A file can ask for more places than 64 bits can count.
bool is_nearly_empty(const ConvShape &s) {
  constexpr double kMostPlaces = 64;  // for each element
  double places = 1;
  for (std::size_t i = 0; i < kConvAxes; ++i)
    places *= static_cast<double>(s.output[i] * s.strides[i] + (s.kernel[i] - 1) * s.dilations[i]);
  return places > kMostPlaces * static_cast<double>(s.input_count() + s.kernel_count() + s.output_count());
}

KernelPtr make_in_float32(ConvShape shape, int team_size) {
  shape.dtype = DType::f32;
  if (is_nearly_empty(shape)) return make_unrolled_conv(shape, team_size);
  if (KernelPtr depthwise = make_depthwise_conv(shape, team_size)) return depthwise;
  if (KernelPtr blocked = make_blocked_conv(shape, team_size)) return blocked;
  return make_unrolled_conv(shape, team_size);
}

// Returns true if oneDNN may compute the convolution in bfloat16. Depthwise convolutions read each element a few times
// only, so products of bfloat16 save little there.
bool is_in_bf16(const ConvShape &s) { return s.dtype == DType::bf16 && !is_nearly_empty(s) && !s.is_depthwise(); }

// A convolution of operands of a narrow type. It widens all operands, runs a float32 kernel, and narrows the result.
template <typename T>
class WidenedConv : public CpuKernel {
 public:
  WidenedConv(const KernelRequest &request, const ConvShape &shape, int team_size)
      : kernel_(make_in_float32(shape, team_size)) {
    ScratchLayout layout;
    layout.bytes(kernel_->scratch_bytes);
    for (const graph::Type &type : request.inputs) inputs_.push_back(placed(layout, type));
    result_ = placed(layout, request.outputs[0]);
    scratch_bytes = layout.total();
  }

  void run(Member &member, const Launch &launch) override {
    std::array<void *, kConvBias + 1> inputs{};
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const T *from = optional_input<T>(launch, i);
      if (from == nullptr) continue;
      float *to = at(launch, inputs_[i]);
      const Range mine = share(inputs_[i].count, kGrain, member);
      widen(from + mine.begin, to + mine.begin, mine.size());
      inputs[i] = to;
    }
    member.barrier();
    float *result = at(launch, result_);
    void *const outputs[] = {result};
    Launch own = launch;
    own.inputs = {inputs.data(), inputs_.size()};
    own.outputs = outputs;
    kernel_->run(member, own);
    member.barrier();
    const Range mine = share(result_.count, kGrain, member);
    narrow(result + mine.begin, output<T>(launch, 0) + mine.begin, mine.size());
  }

 private:
  struct Placed {
    std::uint64_t at;
    std::int64_t count;
  };
  static constexpr std::int64_t kGrain = 64;

  static Placed placed(ScratchLayout &layout, const graph::Type &type) {
    const std::int64_t count = type.dtype == DType::none ? 0 : element_count(type.shape);
    return {layout.take<float>(count), count};
  }
  static float *at(const Launch &launch, const Placed &placed) {
    return reinterpret_cast<float *>(static_cast<std::byte *>(launch.scratch) + placed.at);
  }

  const KernelPtr kernel_;
  std::vector<Placed> inputs_;
  Placed result_;
};
}  // namespace

KernelPtr make_conv(const KernelRequest &request, int team_size) {
  const ConvShape shape(request);
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    if constexpr (std::is_same_v<T, float>) return make_in_float32(shape, team_size);
    if (is_in_bf16(shape))
      if (KernelPtr blocked = make_blocked_conv(shape, team_size)) return blocked;
    return std::make_unique<WidenedConv<T>>(request, shape, team_size);
  });
}

}  // namespace protrain::backend::cpu
