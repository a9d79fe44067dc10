// Fuzzes .npy files. An accepted file must be readable slice by slice, and the last slice must end with the file.
#include "npy.h"

#include <algorithm>
#include <vector>

#include "fuzz/answer.h"
#include "fuzz/memory_file.h"
#include "handles.h"

using protrain::fuzz::expect;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const protrain::fuzz::MemoryFile file(data, size);
  try {
    const tool::NpyFile array(file.path());
    const auto slices = static_cast<std::uint64_t>(array.shape().at(0));
    expect(slices == 0 || array.slice_bytes() <= size / slices, "slices take more than the file has");
    std::vector<std::byte> slice(slices == 0 ? 0 : array.slice_bytes());
    constexpr std::uint64_t kMost = 1000;  // there may be 2^63 empty slices
    for (std::uint64_t i = 0; i < std::min(slices, kMost); ++i) array.read_slice(i, slice.data());
    if (slices == 0 || slice.empty()) return 0;
    array.read_slice(slices - 1, slice.data());
    expect(std::equal(slice.begin(), slice.end(), reinterpret_cast<const std::byte *>(data) + size - slice.size()),
           "the last slice is not the end of the file");
  } catch (const tool::Failure &) {
  }
  return 0;
}
