// Fuzzes .npy files. An accepted file must be readable row by row. The last row must end where the file ends, except in
// an array that is column-major.
#include "npy.h"

#include <algorithm>
#include <vector>

#include "array_file.h"
#include "fuzz/answer.h"
#include "fuzz/memory_file.h"
#include "handles.h"

using protrain::fuzz::expect;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const protrain::fuzz::MemoryFile file(data, size);
  try {
    const tool::ArrayFile array(file.path());
    const std::uint64_t rows = array.rows();
    expect(rows == 0 || array.row_bytes() <= size / rows, "rows take more than the file has");
    std::vector<std::byte> row(rows == 0 ? 0 : array.row_bytes());
    constexpr std::uint64_t kMost = 1000;  // there may be 2^63 empty rows
    for (std::uint64_t i = 0; i < std::min(rows, kMost); ++i) array.read_row(i, row.data());
    if (rows == 0 || row.empty()) return 0;
    array.read_row(rows - 1, row.data());
    if (tool::npy_layout(tool::InputFile(file.path())).column_major) return 0;
    expect(std::equal(row.begin(), row.end(), reinterpret_cast<const std::byte *>(data) + size - row.size()),
           "the last row is not the end of the file");
  } catch (const tool::Failure &) {
  }
  return 0;
}
