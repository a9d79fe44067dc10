// The arithmetic of rounding matrices to few bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "arith/bf16.h"
#include "arith/codes.h"
#include "arith/quantize.h"
#include "base/error.h"
#include "graph/scale_blocks.h"
#include "passes/parameters/rounded.h"

namespace protrain::passes {

namespace {

constexpr std::int64_t kPanelElements = 1 << 18;  // the most elements that are read at once, unless one row has more

// Finds the code whose value is nearest to a number in [-1, 1]. If two are equally near, takes the lower one.
template <int kCount>
class NearestCode {
 public:
  // Finds the border between each two neighbours of `values`, which are in ascending order. The border is the first
  // float that is nearer to the upper neighbour. The compared distances are rounded to floats.
  explicit NearestCode(const std::array<float, kCount> &values) {
    for (std::size_t i = 0; i + 1 < kCount; ++i) {
      const float low = values[i], high = values[i + 1];
      const auto nearer = [&](float x) { return std::abs(x - high) < std::abs(x - low); };
      float x = low + (high - low) / 2;
      while (nearer(x)) x = std::nextafter(x, low);
      while (!nearer(x)) x = std::nextafter(x, high);
      borders_[i] = x;
    }
  }

  std::uint8_t linear(float x) const {
    int code = 0;
    for (const float border : borders_) code += x >= border;
    return static_cast<std::uint8_t>(code);
  }
  std::uint8_t sorted(float x) const {
    return static_cast<std::uint8_t>(std::ranges::upper_bound(borders_, x) - borders_.begin());
  }

 private:
  std::array<float, kCount - 1> borders_;
};

template <int kCount, typename Value>
NearestCode<kCount> nearest_code(Value value) {
  std::array<float, kCount> values;
  for (int i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = value(i);
  return NearestCode<kCount>(values);
}

float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// Encodes each element x of a block as the NF4 code whose value is nearest to x / scale. Returns the scale, which is
// the block's largest magnitude.
float encode_nf4(std::span<const float> x, std::uint8_t *codes) {
  static const NearestCode<16> kNearest = nearest_code<16>([](int code) { return arith::nf4(code); });
  const float scale = largest_magnitude(x), factor = scale > 0 ? 1 / scale : 0;
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = kNearest.linear(std::clamp(x[i] * factor, -1.0F, 1.0F));
  return scale;
}

// Encodes a block as integers from 0 to `most`: x / scale + zero_point, with halves rounded away from zero. One of the
// integers always stands for 0. Returns the scale.
float encode_integers(std::span<const float> x, float most, std::uint8_t *integers, std::uint8_t &zero_point) {
  float low = 0, high = 0;
  for (const float value : x) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const auto rounded = [most](float value) {
    const float inside = std::clamp(value, 0.0F, most);
    const auto whole = static_cast<int>(inside);
    return static_cast<std::uint8_t>(whole + (inside - static_cast<float>(whole) >= 0.5F));
  };
  const float scale = (high - low) / most, factor = scale != 0 ? 1 / scale : 0;
  zero_point = scale != 0 ? rounded(-low / scale) : 0;
  const auto zero = static_cast<float>(zero_point);
  for (std::size_t i = 0; i < x.size(); ++i) integers[i] = rounded(x[i] * factor + zero);
  return scale;
}

// Quantises the blocks' scales themselves to eight bits (double quantisation). Subtracts the mean of all scales from
// each scale, and replaces the difference by a code. Each kScaleBlock codes share one scale.
void compress_scales(RoundedValues &values) {
  static const NearestCode<256> kNearest = nearest_code<256>([](int code) { return arith::dynamic8(code); });
  const std::vector<float> scales = std::move(values.scales);
  double sum = 0;
  for (const float scale : scales) sum += static_cast<double>(scale);
  const auto offset = static_cast<float>(sum / static_cast<double>(scales.size()));
  values.offset = {offset};
  values.scales.clear();
  values.bytes.reserve(scales.size());
  std::vector<float> apart;
  for (std::size_t at = 0; at < scales.size(); at += kScaleBlock) {
    const std::size_t count = std::min<std::size_t>(kScaleBlock, scales.size() - at);
    apart.assign(scales.begin() + static_cast<std::ptrdiff_t>(at),
                 scales.begin() + static_cast<std::ptrdiff_t>(at + count));
    for (float &scale : apart) scale -= offset;
    const float largest = largest_magnitude(apart), factor = largest > 0 ? 1 / largest : 0;
    for (const float scale : apart) values.bytes.push_back(kNearest.sorted(std::clamp(scale * factor, -1.0F, 1.0F)));
    values.scales.push_back(largest);
  }
}

// Returns the blocks' scales as floats, decoded from the codes of compress_scales().
std::vector<float> expanded_scales(const RoundedValues &values) {
  std::vector<float> scales;
  scales.reserve(values.bytes.size());
  for (std::size_t i = 0; i < values.bytes.size(); ++i)
    scales.push_back(arith::dynamic8(values.bytes[i]) * values.scales[i / kScaleBlock] + values.offset[0]);
  return scales;
}

graph::ScaleBlocks blocks_of(const RoundedMatrix &matrix) {
  Shape scales = matrix.shape;
  scales[matrix.axis] = divided_up(scales[matrix.axis], matrix.rounding->block);
  return graph::scale_blocks({{"axis", static_cast<std::int64_t>(matrix.axis)}, {"block_size", matrix.rounding->block}},
                             matrix.shape, scales, matrix.parameter);
}

// Rounds the blocks of a matrix, one panel after the other.
class Rounder {
 public:
  explicit Rounder(const RoundedMatrix &matrix) : matrix_(matrix), blocks_(blocks_of(matrix)) {
    const auto count = static_cast<std::size_t>(element_count(matrix.shape)),
               scales = static_cast<std::size_t>(blocks_.outer * blocks_.outer_step);
    values_.room = MemoryBlock(is_packed() ? (count + 1) / 2 : count, "rounded matrix");
    values_.scales.resize(scales);
    if (!matrix.rounding->codes) values_.bytes.resize(scales);
    block_.resize(static_cast<std::size_t>(blocks_.block));
    integers_.resize(block_.size());
  }

  RoundedValues run(const ReadFloats &read) {
    // Reads the matrix in panels that hold whole blocks. So the size of a panel is a multiple of `row`; only the last
    // panel can have another size. If blocks lie along the last axis, `row` is the size of one row of the matrix.
    // Otherwise it is the size of blocks_.block rows, because each block takes one element from each of these rows.
    const bool last = blocks_.inner == 1;
    const std::int64_t row = last ? blocks_.length : blocks_.block * blocks_.inner;
    const std::int64_t count = element_count(matrix_.shape),
                       step = std::max<std::int64_t>(kPanelElements / row, 1) * row;
    std::vector<float> panel;
    for (std::int64_t at = 0; at < count; at += step) {
      panel.resize(static_cast<std::size_t>(std::min(step, count - at)));
      read(at, panel);
      for (const float value : panel)
        require(std::isfinite(value), Code::nonfinite, matrix_.parameter,
                "holds a number that is not finite, so base_precision={} cannot round it", matrix_.rounding->name);
      for (std::int64_t in_panel = 0; in_panel < static_cast<std::int64_t>(panel.size()); in_panel += row)
        round_row(at + in_panel, panel.data() + in_panel,
                  std::min(row, static_cast<std::int64_t>(panel.size()) - in_panel));
    }
    if (matrix_.rounding->codes) compress_scales(values_);
    return std::move(values_);
  }

 private:
  bool is_packed() const { return matrix_.rounding->bits == 4; }

  // Rounds the `count` elements from element `first` on, block by block. Blocks along the last axis follow one another
  // in memory. Blocks along another axis lie side by side, so their elements alternate in memory.
  void round_row(std::int64_t first, const float *x, std::int64_t count) {
    if (blocks_.inner == 1) {
      for (std::int64_t at = 0; at < count; at += blocks_.block)
        round_block(first + at, x + at, 1, std::min(blocks_.block, count - at));
    } else {
      for (std::int64_t i = 0; i < blocks_.inner; ++i)
        round_block(first + i, x + i, blocks_.inner, count / blocks_.inner);
    }
  }

  void round_block(std::int64_t first, const float *x, std::int64_t step, std::int64_t count) {
    const std::span<float> block = std::span(block_).first(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) block[static_cast<std::size_t>(i)] = x[i * step];
    const auto scale = static_cast<std::size_t>(blocks_.scale_of(first));
    if (matrix_.rounding->codes)
      values_.scales[scale] = encode_nf4(block, integers_.data());
    else
      values_.scales[scale] = encode_integers(block, is_packed() ? 15 : 255, integers_.data(), values_.bytes[scale]);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto element = static_cast<std::size_t>(first + i * step);
      const std::uint8_t integer = integers_[static_cast<std::size_t>(i)];
      if (is_packed())
        values_.elements()[element / 2] |= static_cast<std::uint8_t>(integer << (element % 2 * 4));
      else
        values_.elements()[element] = integer;
    }
  }

  const RoundedMatrix &matrix_;
  const graph::ScaleBlocks blocks_;
  RoundedValues values_;
  std::vector<float> block_;
  std::vector<std::uint8_t> integers_;
};

}  // namespace

std::span<const std::byte> RoundedValues::part(std::size_t i) const {
  const auto bytes_of = [](const auto &values) { return std::as_bytes(std::span(values)); };
  const bool codes = !offset.empty();
  if (i == 0) return bytes_of(elements());
  if (i == 3) return bytes_of(offset);
  return (i == 1) == codes ? bytes_of(bytes) : bytes_of(scales);
}

RoundedValues round(const RoundedMatrix &matrix, const ReadFloats &read) { return Rounder(matrix).run(read); }

void round_floats(const RoundedMatrix &matrix, std::span<float> floats) {
  if (matrix.rounding->block == 0) {
    for (float &value : floats) value = arith::widened(arith::narrowed<arith::bf16>(value));
    return;
  }
  const RoundedValues values = round(matrix, [&](std::int64_t first, std::span<float> out) {
    std::copy_n(floats.begin() + first, out.size(), out.begin());
  });
  const bool codes = matrix.rounding->codes, packed = matrix.rounding->bits == 4;
  const std::vector<float> scales = codes ? expanded_scales(values) : values.scales;
  const graph::ScaleBlocks blocks = blocks_of(matrix);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const auto scale = static_cast<std::size_t>(blocks.scale_of(static_cast<std::int64_t>(i)));
    const int integer = packed ? values.elements()[i / 2] >> (i % 2 * 4) & 15 : values.elements()[i];
    if (codes)
      floats[i] = arith::nf4(integer) * scales[scale];
    else
      floats[i] =
          arith::dequantized(static_cast<float>(integer), scales[scale], static_cast<float>(values.bytes[scale]));
  }
}

}  // namespace protrain::passes
