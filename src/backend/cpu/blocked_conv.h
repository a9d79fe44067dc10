// Convolutions by oneDNN on one thread. oneDNN computes in layouts of its own, in which a few channels of a position
// lie side by side. So operands are converted into these layouts, and results are converted back. oneDNN reads float32
// or bfloat16, and its results are always float32. Create convolutions on a thread of the team, because OpenMP is
// limited to one thread only on these threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/common/conv_shape.h"

namespace protrain::backend::cpu {

class BlockedConv {
 public:
  // Makes oneDNN's convolution for `shape`. Returns an empty optional if oneDNN would unroll the windows, compute
  // without vectors, mix samples in its layout, or compute in bfloat16 without the processor's instructions for it.
  // `row` is the distance, in elements, from the weights of one map to those of the next map. It is larger than the
  // number of weights in a map if w is cut out of larger weights. convert() makes elements of type `result` from the
  // convolution's result. Each of the `seats` seats has operands of its own, so threads can run the convolution at the
  // same time, each on another seat.
  static std::optional<BlockedConv> find(const ConvShape &shape, std::int64_t row, DType result, int seats);
  ~BlockedConv();
  BlockedConv(BlockedConv &&) noexcept;
  BlockedConv &operator=(BlockedConv &&) noexcept;

  const ConvShape &shape() const;
  // Returns the bytes of w, or of one sample of x or y, in oneDNN's layout.
  std::uint64_t bytes(ConvOperand operand) const;
  bool is_plain(ConvOperand operand) const;  // true if oneDNN's layout is that of the tensor
  std::uint64_t scratch_bytes() const;

  // Converts w, or one sample of x or y. The result of the convolution is converted from oneDNN's layout to the
  // tensor's. The other two operands are converted from the tensor's layout to oneDNN's.
  void convert(int seat, ConvOperand operand, const void *from, void *to);
  // Computes one of x, w and y, the result of the convolution, from the other two. All three are in oneDNN's layouts.
  // Samples lie one after the other, without a gap.
  void run(int seat, const void *x, const void *w, const void *y, void *scratch);

 private:
  struct State;
  explicit BlockedConv(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace protrain::backend::cpu
