// Fuzzes safetensors files that hold training data. The bytes of an accepted tensor must lie within the file.
#include "safetensors.h"

#include <algorithm>

#include "fuzz/answer.h"
#include "fuzz/memory_file.h"
#include "handles.h"

using protrain::fuzz::expect;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const protrain::fuzz::MemoryFile memory(data, size);
  try {
    const tool::InputFile file(memory.path());
    std::vector<std::string> names = tool::safetensors_names(file);
    constexpr std::size_t kMost = 8;
    names.resize(std::min(names.size(), kMost));
    for (const std::string &name : names) {
      const tool::ArrayLayout layout = tool::safetensors_layout(file, name);
      std::uint64_t bytes = tool::element_bytes(layout.dtype);
      for (const std::int64_t dim : layout.shape) bytes *= static_cast<std::uint64_t>(dim);
      expect(layout.offset <= size && bytes <= size - layout.offset, "a tensor lies outside of the file");
    }
  } catch (const tool::Failure &) {
  }
  return 0;
}
