// Convolutions by oneDNN on one thread. oneDNN computes in layouts of its own, in which a few channels of a position
// lie side by side; operands are brought into these layouts and results back. All layouts are of float32. Create
// convolutions on a thread of the team, because there OpenMP is limited to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/common/conv_shape.h"

namespace protrain::backend::cpu {

enum class ConvOperand : std::uint8_t { x, w, y };

class BlockedConv {
 public:
  // `row`: elements of w from one map's weights to the next's, where w is a part of larger weights. Each seat has
  // operands of its own, so several threads, each with another seat, may run the convolution at the same time.
  // Returns nothing if oneDNN would unroll the windows, or compute without vectors.
  static std::optional<BlockedConv> find(const ConvShape &shape, std::int64_t row, int seats);
  ~BlockedConv();
  BlockedConv(BlockedConv &&) noexcept;
  BlockedConv &operator=(BlockedConv &&) noexcept;

  const ConvShape &shape() const;
  // Bytes of an operand in oneDNN's layout. For x and y they are those of one sample.
  std::uint64_t bytes(ConvOperand operand) const;
  bool is_plain(ConvOperand operand) const;  // oneDNN's layout is that of the tensor
  std::uint64_t scratch_bytes() const;

  // Converts w, or one sample of x or y: an operand into oneDNN's layout, and the result out of it.
  void convert(int seat, ConvOperand operand, const void *from, void *to);
  // Computes the result from operands in oneDNN's layouts. Samples lie one after the other, without a gap.
  void run(int seat, const void *x, const void *w, const void *y, void *scratch);

 private:
  struct State;
  explicit BlockedConv(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace protrain::backend::cpu
