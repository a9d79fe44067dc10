// Convolutions by oneDNN on one thread. oneDNN computes in layouts of its own, in which a few channels of a position
// lie side by side. So operands are converted into these layouts, and results are converted back. All elements are
// float32. Create convolutions on a thread of the team, because there OpenMP is limited to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/common/conv_shape.h"

namespace protrain::backend::cpu {

class BlockedConv {
 public:
  // Makes oneDNN's convolution for `shape`. Returns nothing if oneDNN would unroll the windows, compute without
  // vectors, or mix samples in its layout. `row` is the distance, in elements, from the weights of one map to those of
  // the next map. This is more than a map's own weights take if w is a part of larger weights. Each seat has operands
  // of its own. So threads can run the convolution at the same time, each with another seat.
  static std::optional<BlockedConv> find(const ConvShape &shape, std::int64_t row, int seats);
  ~BlockedConv();
  BlockedConv(BlockedConv &&) noexcept;
  BlockedConv &operator=(BlockedConv &&) noexcept;

  const ConvShape &shape() const;
  // Returns the bytes of w, or of one sample of x or y, in oneDNN's layout.
  std::uint64_t bytes(ConvOperand operand) const;
  bool is_plain(ConvOperand operand) const;  // true if oneDNN's layout is that of the tensor
  std::uint64_t scratch_bytes() const;

  // Converts w, or one sample of x or y. The result of the convolution is converted out of oneDNN's layout. Operands
  // that the convolution reads are converted into it.
  void convert(int seat, ConvOperand operand, const void *from, void *to);
  // Computes the result from operands in oneDNN's layouts. Samples lie one after the other, without a gap.
  void run(int seat, const void *x, const void *w, const void *y, void *scratch);

 private:
  struct State;
  explicit BlockedConv(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace protrain::backend::cpu
