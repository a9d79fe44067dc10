// Convolutions by oneDNN. Members convert x and y between oneDNN's layouts and those of tensors. They convert only a
// few samples at a time, so that the converted copies stay in the caches.
#include "backend/cpu/blocked_conv.h"
#include "backend/cpu/conv.h"

namespace protrain::backend::cpu {

namespace {

constexpr double kLeastFlops = 4e6;            // least FLOPs of a unit, so that copies of its operands take little time
constexpr double kUnits = 32;                  // units that keep a large team busy
constexpr std::int64_t kMapGrain = 64;         // least maps of a unit of y: oneDNN reads x once for 64 maps
constexpr std::int64_t kChannelGrain = 16;     // least channels of a unit of x: 16 lie side by side in oneDNN's layout
constexpr std::int64_t kWeightGrain = 32;      // least maps of a unit of weights, because each unit reads all of x
constexpr std::int64_t kRoundBytes = 4 << 20;  // most bytes of a round's samples of x and y in ConvWeightGrad

double flops_of(const ConvShape &s) {
  return 2.0 * static_cast<double>(s.samples * s.output_count() * s.maps) *
         static_cast<double>(s.channels_in_group() * s.kernel_count());
}

// Returns the number of equal parts, at most `wanted`, into which `count` elements are cut. If there is more than one
// part, the size of a part is a multiple of `grain`.
std::int64_t equal_parts(std::int64_t count, std::int64_t grain, double wanted) {
  auto parts = static_cast<std::int64_t>(std::min(wanted, static_cast<double>(count / grain)));
  while (parts > 1 && (count % parts != 0 || count / parts % grain != 0)) --parts;
  return std::max<std::int64_t>(parts, 1);
}

// Returns the number of parts into which the result is cut. More parts give more units of work, but smaller ones.
// `units` is the number of units if the result is not cut. If the convolution has several groups, a part consists of
// some of the groups. Otherwise a part consists of some channels if the result is x, and of some maps if the result is
// y or w.
std::int64_t parts_of(const ConvShape &s, std::int64_t units) {
  const double of_flops = flops_of(s) / kLeastFlops / static_cast<double>(units);
  const double wanted = std::min(kUnits / static_cast<double>(units), of_flops);
  if (s.groups > 1) return equal_parts(s.groups, 1, wanted);
  if (s.result == ConvOperand::w) return equal_parts(s.maps, kWeightGrain, wanted);
  if (s.result == ConvOperand::x) return equal_parts(s.channels, kChannelGrain, wanted);
  return equal_parts(s.maps, kMapGrain, wanted);
}

// Returns the shape of the convolution that computes one of `parts` equal parts of the result for `samples` samples.
ConvShape part_of(ConvShape s, std::int64_t samples, std::int64_t parts) {
  s.samples = samples;
  if (s.groups > 1) {
    s.groups /= parts;
    s.channels /= parts;
    s.maps /= parts;
  } else {
    (s.result == ConvOperand::x ? s.channels : s.maps) /= parts;
  }
  return s;
}

// The distances in an operand, in elements: from a sample to the next sample, and from a part to the next part. `part`
// is 0 if the operand is not cut into parts, because all parts share it.
struct Steps {
  std::int64_t sample, part;
};
Steps steps_of(const ConvShape &whole, const ConvShape &part, ConvOperand operand) {
  const bool x = operand == ConvOperand::x;
  const std::int64_t count = x ? whole.input_count() : whole.output_count();
  const std::int64_t all = x ? whole.channels : whole.maps, own = x ? part.channels : part.maps;
  return {all * count, own == all ? 0 : own * count};
}

// Computes Conv and ConvTranspose. A unit of work is a part of the result (some groups, channels or maps) for one
// sample. The elements of operands are of type T.
template <typename T>
class BlockedResult : public CpuKernel {
 public:
  BlockedResult(const ConvShape &s, BlockedConv conv, std::int64_t parts, int team_size)
      : shape_(s),
        conv_(std::move(conv)),
        parts_(parts),
        source_(s.result == ConvOperand::y ? ConvOperand::x : ConvOperand::y),
        from_(steps_of(s, conv_.shape(), source_)),
        to_(steps_of(s, conv_.shape(), s.result)) {
    ScratchLayout own;
    weight_bytes_ = round_up(conv_.bytes(ConvOperand::w), kAlignment);
    source_at_ = own.bytes(conv_.is_plain(source_) ? 0 : conv_.bytes(source_));
    result_at_ = own.bytes(conv_.is_plain(shape_.result) ? 0 : conv_.bytes(shape_.result));
    sums_at_ = own.take<float>(adds_wide() ? channels_of_part() * channel_elements() : 0);
    conv_at_ = own.bytes(conv_.scratch_bytes());
    scratch_ = TeamScratch(checked_multiply(weight_bytes_, static_cast<std::uint64_t>(parts)), own.total());
    scratch_bytes = scratch_.bytes(team_size);
  }

  void run(Member &member, const Launch &launch) override {
    const Range laid = share(parts_, 1, member);
    for (std::int64_t part = laid.begin; part < laid.end; ++part)
      conv_.convert(member.index, ConvOperand::w, input<T>(launch, 1) + part * weight_step(), weights(launch, part));
    member.barrier();
    const Range mine = share(shape_.samples * parts_, 1, member);
    std::int64_t held = -1;  // the first element of the source that was converted last; -1: none
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const bool by_part = weighs_more();
      const std::int64_t sample = by_part ? i % shape_.samples : i / parts_;
      const std::int64_t part = by_part ? i / shape_.samples : i % parts_;
      const std::int64_t first = sample * from_.sample + part * from_.part;
      const void *source = input<T>(launch, 0) + first;
      if (!conv_.is_plain(source_)) {
        std::byte *copy = scratch_.own<std::byte>(member, launch, source_at_);
        if (first != held) conv_.convert(member.index, source_, source, copy);
        held = first;
        source = copy;
      }
      compute(member, launch, sample, part, source);
    }
  }

 private:
  // Returns true if all weights together are larger than a sample of the source. If true, a member computes all samples
  // of a part before it begins the next part. If false, it computes all parts of a sample before it begins the next
  // sample.
  bool weighs_more() const { return weight_bytes_ * static_cast<std::uint64_t>(parts_) > conv_.bytes(source_); }
  std::int64_t weight_step() const {
    const std::int64_t row = shape_.channels_in_group() * shape_.kernel_count();
    if (to_.part == 0) return 0;
    const bool by_channels = shape_.groups == 1 && shape_.result == ConvOperand::x;
    return by_channels ? conv_.shape().channels * shape_.kernel_count() : conv_.shape().maps * row;
  }
  std::byte *weights(const Launch &launch, std::int64_t part) const {
    return TeamScratch::shared<std::byte>(launch, static_cast<std::uint64_t>(part) * weight_bytes_);
  }

  // Returns true if a bias is added to float32 sums before they are narrowed.
  bool adds_wide() const { return shape_.bias && !std::is_same_v<T, float>; }
  std::int64_t channels_of_part() const {
    return shape_.result == ConvOperand::y ? conv_.shape().maps : conv_.shape().channels;
  }
  std::int64_t channel_elements() const {
    return shape_.result == ConvOperand::y ? shape_.output_count() : shape_.input_count();
  }

  void compute(const Member &member, const Launch &launch, std::int64_t sample, std::int64_t part, const void *source) {
    T *to = output<T>(launch, 0) + sample * to_.sample + part * to_.part;
    void *plain = adds_wide() ? scratch_.own<void>(member, launch, sums_at_) : to;
    void *result = conv_.is_plain(shape_.result) ? plain : scratch_.own<void>(member, launch, result_at_);
    const bool makes_y = shape_.result == ConvOperand::y;
    conv_.run(member.index, makes_y ? source : result, weights(launch, part), makes_y ? result : source,
              scratch_.own<void>(member, launch, conv_at_));
    if (result != plain) conv_.convert(member.index, shape_.result, result, plain);
    if (!shape_.bias) return;
    const float *sums = static_cast<const float *>(plain);
    const std::int64_t channels = channels_of_part(), count = channel_elements();
    for (std::int64_t c = 0; c < channels; ++c)
      store_channel(sums + c * count, launch, part * channels + c, to + c * count, count);
  }

  const ConvShape shape_;
  BlockedConv conv_;
  const std::int64_t parts_;
  const ConvOperand source_;
  const Steps from_, to_;
  std::uint64_t weight_bytes_, source_at_, result_at_, sums_at_, conv_at_;
  TeamScratch scratch_;
};

// Computes ConvWeightGrad. The samples are cut into rounds. The x and y of a round take at most kRoundBytes, unless the
// round is a single sample. In each round, a unit of work is a part of the weights, summed over the samples of the
// round. The results of the rounds are added from the first round to the last, in float32. The elements of operands are
// of type T.
template <typename T>
class BlockedWeights : public CpuKernel {
 public:
  BlockedWeights(const ConvShape &s, BlockedConv conv, std::int64_t parts, int team_size)
      : shape_(s),
        conv_(std::move(conv)),
        parts_(parts),
        x_(placed(ConvOperand::x)),
        y_(placed(ConvOperand::y)),
        weight_bytes_(round_up(conv_.bytes(ConvOperand::w), kAlignment)) {
    ScratchLayout shared, own;
    const auto all = static_cast<std::uint64_t>(parts);
    x_at_ = shared.bytes(x_.in_place ? 0 : checked_multiply(x_.bytes, x_.copies));
    y_at_ = shared.bytes(y_.in_place ? 0 : checked_multiply(y_.bytes, y_.copies));
    sums_at_ = shared.bytes(rounds() > 1 ? checked_multiply(weight_bytes_, all) : 0);
    weights_at_ = own.bytes(rounds() > 1 || !conv_.is_plain(ConvOperand::w) ? weight_bytes_ : 0);
    conv_at_ = own.bytes(conv_.scratch_bytes());
    scratch_ = TeamScratch(shared.total(), own.total());
    scratch_bytes = scratch_.bytes(team_size);
  }

  void run(Member &member, const Launch &launch) override {
    for (std::int64_t round = 0; round < rounds(); ++round) {
      lay_in(member, launch, x_, 0, round, x_at_);
      lay_in(member, launch, y_, 1, round, y_at_);
      member.barrier();
      const Range mine = share(parts_, 1, member);
      for (std::int64_t part = mine.begin; part < mine.end; ++part) compute(member, launch, round, part);
      if (round + 1 < rounds()) member.barrier();
    }
  }

 private:
  // The x or the y of all samples of one round, in oneDNN's layout.
  struct Placed {
    ConvOperand operand;
    Steps steps;
    std::uint64_t sample_bytes, bytes;  // bytes of one sample; bytes of all samples of the round, for one part
    std::uint64_t copies;               // one for each part, or one that all parts share
    bool in_place;                      // oneDNN reads the tensor itself
  };
  Placed placed(ConvOperand operand) const {
    const Steps steps = steps_of(shape_, conv_.shape(), operand);
    const std::uint64_t sample_bytes = conv_.bytes(operand);
    return {operand,
            steps,
            sample_bytes,
            round_up(checked_multiply(sample_bytes, static_cast<std::uint64_t>(conv_.shape().samples)), kAlignment),
            steps.part == 0 ? 1 : static_cast<std::uint64_t>(parts_),
            steps.part == 0 && conv_.is_plain(operand)};
  }

  std::int64_t rounds() const { return shape_.samples / conv_.shape().samples; }

  void lay_in(const Member &member, const Launch &launch, const Placed &p, std::size_t number, std::int64_t round,
              std::uint64_t at) {
    if (p.in_place) return;
    const std::int64_t samples = conv_.shape().samples;
    const Range mine = share(samples * static_cast<std::int64_t>(p.copies), 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t part = i / samples, sample = i % samples;
      const T *from = input<T>(launch, number) + (round * samples + sample) * p.steps.sample + part * p.steps.part;
      conv_.convert(member.index, p.operand, from,
                    TeamScratch::shared<std::byte>(launch, at + static_cast<std::uint64_t>(part) * p.bytes +
                                                               static_cast<std::uint64_t>(sample) * p.sample_bytes));
    }
  }
  const void *operand(const Launch &launch, const Placed &p, std::size_t number, std::int64_t round, std::int64_t part,
                      std::uint64_t at) const {
    if (p.in_place) return input<T>(launch, number) + round * conv_.shape().samples * p.steps.sample;
    return TeamScratch::shared<std::byte>(launch,
                                          at + (p.copies == 1 ? 0 : static_cast<std::uint64_t>(part) * p.bytes));
  }

  void compute(const Member &member, const Launch &launch, std::int64_t round, std::int64_t part) {
    const std::int64_t count = conv_.shape().maps * shape_.channels_in_group() * shape_.kernel_count();
    T *plain = output<T>(launch, 0) + part * count;
    auto *sums = TeamScratch::shared<float>(launch, sums_at_ + static_cast<std::uint64_t>(part) * weight_bytes_);
    float *own = scratch_.own<float>(member, launch, weights_at_);
    const bool last = round + 1 == rounds(), ready = conv_.is_plain(ConvOperand::w);
    void *result = own;
    if (rounds() == 1 && ready) result = plain;
    if (rounds() > 1 && round == 0) result = sums;
    conv_.run(member.index, operand(launch, x_, 0, round, part, x_at_), result,
              operand(launch, y_, 1, round, part, y_at_), scratch_.own<void>(member, launch, conv_at_));
    if (round > 0) {
      add(own, sums, static_cast<std::int64_t>(conv_.bytes(ConvOperand::w) / sizeof(float)));
      result = sums;
    }
    if (last && result != plain) conv_.convert(member.index, ConvOperand::w, result, plain);
  }

  static void add(const float *from, float *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  }

  const ConvShape shape_;
  BlockedConv conv_;
  const std::int64_t parts_;
  const Placed x_, y_;
  const std::uint64_t weight_bytes_;
  std::uint64_t x_at_, y_at_, sums_at_, weights_at_, conv_at_;
  TeamScratch scratch_;
};

// Returns the number of samples in each round of BlockedWeights.
std::int64_t samples_of_weights_round(const ConvShape &s) {
  const std::int64_t elements = s.channels * s.input_count() + s.maps * s.output_count();
  return s.samples_of_round(elements * static_cast<std::int64_t>(size_of(s.dtype)), kRoundBytes);
}
}  // namespace

KernelPtr make_blocked_conv(const ConvShape &shape, int team_size) {
  const bool weights = shape.result == ConvOperand::w;
  const std::int64_t samples = weights ? samples_of_weights_round(shape) : 1;
  const std::int64_t parts = parts_of(shape, weights ? 1 : shape.samples);
  const std::int64_t row = shape.channels_in_group() * shape.kernel_count();
  const DType result = shape.bias ? DType::f32 : shape.dtype;  // a bias is added in float32
  std::optional<BlockedConv> conv = BlockedConv::find(part_of(shape, samples, parts), row, result, team_size);
  if (!conv) return nullptr;
  return with_float(shape.dtype, [&]<typename T>(T) -> KernelPtr {
    if (weights) return std::make_unique<BlockedWeights<T>>(shape, std::move(*conv), parts, team_size);
    return std::make_unique<BlockedResult<T>>(shape, std::move(*conv), parts, team_size);
  });
}

}  // namespace protrain::backend::cpu
