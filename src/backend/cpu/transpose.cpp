#include "backend/cpu/transpose.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/clones.h"

namespace protrain::backend {

namespace {
constexpr std::int64_t kBlock = 16;  // a cache line of floats either way

PROTRAIN_INLINE void block_16(ConstRows from, Rows to) {
  float block[kBlock][kBlock];
  for (int i = 0; i < kBlock; ++i)
    for (int j = 0; j < kBlock; ++j) block[j][i] = from.at[i * from.ld + j];
  for (int j = 0; j < kBlock; ++j)
    for (int i = 0; i < kBlock; ++i) to.at[j * to.ld + i] = block[j][i];
}
}  // namespace

PROTRAIN_CLONES
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
