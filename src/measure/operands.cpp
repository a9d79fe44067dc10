#include "measure/operands.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/shape.h"
#include "base/tier.h"
#include "ops/op.h"

namespace protrain::measure {

namespace {

using graph::Type;
using graph::ValueId;

// The layout of a float format: `exponent` has the bits of 2^-7; `mantissa` and `sign` are masks.
struct FloatFormat {
  std::uint64_t exponent, mantissa, sign;
};

FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {0x3F80000000000000, 0x000FFFFFFFFFFFFF, 1ull << 63};
    case DType::f16:
      return {0x2000, 0x03FF, 0x8000};
    case DType::bf16:
      return {0x3C00, 0x007F, 0x8000};
    default:
      return {0x3C000000, 0x007FFFFF, 1ull << 31};
  }
}

// Returns the bits of a float whose magnitude lies in (0, 2^-6). Half of the magnitudes lie in [2^-7, 2^-6), half of
// the others in the next lower power of 2, and so on. So exponents vary, as those of weights and activations do. With
// one exponent for all numbers, fewer bits would change from number to number. A GPU would then need less power, and
// multiply faster than in a step.
std::uint64_t random_float(const FloatFormat &format, std::uint64_t mask, std::uint64_t bits, std::uint64_t choice) {
  constexpr int kLowest = 4;  // below 2^-7; float16 has normal numbers down to 2^-14
  const int lower = std::min(std::countr_zero(choice), kLowest);
  const std::uint64_t one_step = format.mantissa + 1;  // the exponent's lowest bit
  return (format.exponent - static_cast<std::uint64_t>(lower) * one_step) | (bits & mask);
}

// A linear congruential generator. Only its upper bits are random enough to be used.
class RandomBits {
 public:
  std::uint64_t next() { return half() << 32 | half(); }

 private:
  std::uint64_t half() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return state_ >> 32;
  }
  std::uint64_t state_ = 1;
};

// Returns the integers that fill the labels or the lengths of a CTC loss. Only certain integers are valid: labels that
// are not blank, and the full length of the samples. For any other operand, returns an empty list.
std::vector<std::uint64_t> integers_for(const graph::Graph &graph, const graph::Node &node, std::size_t input) {
  const std::size_t logits = node.op == "CtcLossGrad" ? 1 : 0;
  if ((node.op != "CtcLoss" && node.op != "CtcLossGrad") || input <= logits) return {};
  const Shape &shape = graph.value(node.inputs[logits]).type.shape;  // (N, T, C)
  if (input == logits + 2) return {static_cast<std::uint64_t>(shape[1])};
  std::vector<std::uint64_t> labels;
  for (std::int64_t label = 0; label < shape[2] && labels.size() < 2; ++label)
    if (label != node.attributes.integer("blank", 0)) labels.push_back(static_cast<std::uint64_t>(label));
  return labels;
}

// Returns the number of rows in the table of a Gather or its gradient, or 0 for any other node. Random indices are
// drawn from all of these rows. If they came from fewer rows, a gradient would add to the same row more often than with
// a real batch of tokens.
std::uint64_t rows_to_index(const graph::Graph &graph, const graph::Node &node) {
  if (node.op != "Gather" && node.op != "GatherGrad") return 0;
  const Shape &table = graph.value(node.op == "Gather" ? node.inputs[0] : node.outputs[0]).type.shape;
  const std::int64_t axis = node.attributes.integer("axis", 0);
  const std::size_t from_front = static_cast<std::size_t>(axis) + (axis < 0 ? table.size() : 0);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(table.at(from_front), 1));
}

}  // namespace

DeviceMemory::DeviceMemory(backend::Device &device, std::uint64_t bytes)
    : device_(device), data_(static_cast<std::byte *>(device.allocate(std::max<std::uint64_t>(bytes, 1)))) {}

DeviceMemory::~DeviceMemory() { device_.release(data_); }

void DeviceMemory::fill(std::uint64_t offset, std::uint64_t bytes, std::span<const std::byte> tile) {
  for (std::uint64_t done = 0; done < bytes; done += tile.size())
    device_.write(data_ + offset + done, tile.data(), std::min<std::uint64_t>(tile.size(), bytes - done));
}

std::vector<std::byte> random_tile(DType dtype, std::uint64_t bytes, bool both_signs, std::uint64_t bound) {
  const FloatFormat format = format_of(dtype);
  const std::uint64_t random = format.mantissa | (both_signs ? format.sign : 0);
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> tile(std::min(kTileBytes, bytes));
  RandomBits bits;
  for (std::size_t at = 0; at + width <= tile.size(); at += width) {
    const std::uint64_t drawn = bits.next();
    const std::uint64_t element = is_float(dtype) ? random_float(format, random, drawn, bits.next()) : drawn % bound;
    std::memcpy(tile.data() + at, &element, width);  // little endian: the low bytes come first
  }
  return tile;
}

std::vector<std::byte> tile_of(DType dtype, std::uint64_t bytes, const std::vector<std::uint64_t> &integers) {
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> tile(std::min(kTileBytes, bytes));
  for (std::size_t i = 0; i < tile.size() / width; ++i)
    std::memcpy(tile.data() + i * width, &integers[i % integers.size()], width);
  return tile;
}

Operands::Operands(const graph::Graph &graph, const graph::Node &node, std::uint64_t scratch)
    : graph_(graph), node_(node), scratch_bytes_(scratch) {
  for (ValueId id : node.inputs) inputs_.push_back(take(graph, id));
  for (ValueId id : node.outputs) outputs_.push_back(take(graph, id));
}

std::uint64_t Operands::bytes(std::size_t places) const {
  return checked_add(checked_multiply(place_bytes_, places), round_up(scratch_bytes_, kDiskAlignment));
}

std::uint64_t Operands::take(std::uint64_t bytes) {
  const std::uint64_t at = place_bytes_;
  place_bytes_ = round_up(checked_add(place_bytes_, bytes), kDiskAlignment);
  return at;
}

// Returns the offset of one input or output in its place, or kAbsent if the node lacks it. Also notes the smallest
// dimension of all inputs and outputs. For most nodes fill_input() draws indices below that dimension, so that every
// index lies inside the table that it points into.
std::uint64_t Operands::take(const graph::Graph &graph, ValueId id) {
  if (id == ValueId::none) return kAbsent;
  const Type &type = graph.value(id).type;
  for (std::int64_t dim : type.shape)
    smallest_dim_ = std::min(smallest_dim_, static_cast<std::uint64_t>(std::max<std::int64_t>(dim, 1)));
  return take(byte_count(type.dtype, type.shape));
}

// Fills one input. Matrix products and other operators that count flops get numbers of both signs, like weights and
// activations. All others get positive numbers, because positive numbers have logarithms and roots.
void Operands::fill_input(DeviceMemory &memory, std::size_t input, std::size_t places) const {
  const Type &type = graph_.value(node_.inputs[input]).type;
  const ops::Op *op = ops::find(node_.op);
  const bool is_product = op != nullptr && op->flops != nullptr;
  const std::uint64_t rows = rows_to_index(graph_, node_);
  const std::uint64_t bound = type.dtype == DType::boolean ? 2 : rows > 0 ? rows : smallest_dim_;
  const std::vector<std::uint64_t> integers = integers_for(graph_, node_, input);
  const std::uint64_t bytes = byte_count(type.dtype, type.shape);
  const std::vector<std::byte> tile =
      integers.empty() ? random_tile(type.dtype, bytes, is_product, bound) : tile_of(type.dtype, bytes, integers);
  for (std::size_t place = 0; place < places; ++place) memory.fill(place * place_bytes_ + inputs_[input], bytes, tile);
}

void Operands::fill_output(DeviceMemory &memory, std::size_t output, std::size_t places) const {
  const Type &type = graph_.value(node_.outputs[output]).type;
  const std::uint64_t bytes = byte_count(type.dtype, type.shape);
  const std::vector<std::byte> tile(std::min(kTileBytes, bytes));
  for (std::size_t place = 0; place < places; ++place)
    memory.fill(place * place_bytes_ + outputs_[output], bytes, tile);
}

std::vector<LaunchOperands> Operands::place(DeviceMemory &memory, std::size_t places) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] != kAbsent) fill_input(memory, i, places);
  for (std::size_t i = 0; i < outputs_.size() && places > 1; ++i)
    if (outputs_[i] != kAbsent) fill_output(memory, i, places);

  std::vector<LaunchOperands> launches(places);
  std::byte *at = memory.data();
  for (LaunchOperands &launch : launches) {
    const auto address = [at](std::uint64_t offset) { return offset == kAbsent ? nullptr : at + offset; };
    for (std::uint64_t offset : inputs_) launch.inputs.push_back(address(offset));
    for (std::uint64_t offset : outputs_) launch.outputs.push_back(address(offset));
    launch.scratch = memory.data() + places * place_bytes_;
    at += place_bytes_;
  }
  return launches;
}

}  // namespace protrain::measure
