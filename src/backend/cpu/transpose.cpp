#include "backend/cpu/transpose.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/clones.h"

namespace protrain::backend {

namespace {
constexpr std::int64_t kBlock = 16;  // a cache line of floats either way

using Four = float __attribute__((vector_size(16), aligned(4), may_alias));
using Order = int __attribute__((vector_size(16)));

PROTRAIN_INLINE Four load(const float *at) { return *reinterpret_cast<const Four *>(at); }
PROTRAIN_INLINE void store(float *at, Four value) { *reinterpret_cast<Four *>(at) = value; }

PROTRAIN_INLINE void block_4(ConstRows from, Rows to) {
  const Four a = load(from.at), b = load(from.at + from.ld), c = load(from.at + 2 * from.ld),
             d = load(from.at + 3 * from.ld);
  constexpr Order kLow = {0, 4, 1, 5}, kHigh = {2, 6, 3, 7};
  const Four ac_low = __builtin_shuffle(a, c, kLow), ac_high = __builtin_shuffle(a, c, kHigh);
  const Four bd_low = __builtin_shuffle(b, d, kLow), bd_high = __builtin_shuffle(b, d, kHigh);
  store(to.at, __builtin_shuffle(ac_low, bd_low, kLow));
  store(to.at + to.ld, __builtin_shuffle(ac_low, bd_low, kHigh));
  store(to.at + 2 * to.ld, __builtin_shuffle(ac_high, bd_high, kLow));
  store(to.at + 3 * to.ld, __builtin_shuffle(ac_high, bd_high, kHigh));
}

PROTRAIN_INLINE void block_16(ConstRows from, Rows to) {
  for (std::int64_t j = 0; j < kBlock; j += 4)
    for (std::int64_t i = 0; i < kBlock; i += 4)
      block_4({from.at + i * from.ld + j, from.ld}, {to.at + j * to.ld + i, to.ld});
}
}  // namespace

void transpose(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to) {
  for (std::int64_t i = 0; i < rows; i += kBlock)
    for (std::int64_t j = 0; j < columns; j += kBlock) {
      const ConstRows source{from.at + i * from.ld + j, from.ld};
      const Rows target{to.at + j * to.ld + i, to.ld};
      if (i + kBlock <= rows && j + kBlock <= columns) {
        block_16(source, target);
        continue;
      }
      for (std::int64_t jj = 0; jj < std::min(kBlock, columns - j); ++jj)
        for (std::int64_t ii = 0; ii < std::min(kBlock, rows - i); ++ii)
          target.at[jj * to.ld + ii] = source.at[ii * from.ld + jj];
    }
}

void copy_rows(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(to.at + i * to.ld, from.at + i * from.ld, static_cast<std::size_t>(columns) * sizeof(float));
}

}  // namespace protrain::backend
