// Fuzzes token files of each type that a user may name. An accepted file must be readable to its end, at once and in
// windows.
#include "tokens.h"

#include <algorithm>
#include <span>
#include <vector>

#include "fuzz/answer.h"
#include "fuzz/memory_file.h"
#include "handles.h"

using protrain::fuzz::expect;

namespace {

void read(tool::TokenFile &tokens, std::size_t size) {
  expect(tokens.count() <= size, "more tokens than bytes");
  std::vector<std::int64_t> all(tokens.count()), window(std::min<std::uint64_t>(tokens.count(), 7));
  tokens.read(0, all);
  expect(std::ranges::all_of(all, [](std::int64_t id) { return id >= 0 && id <= 0xFFFFFFFFll; }), "no token id");
  const std::uint64_t last = tokens.count() - window.size();
  for (const std::uint64_t begin : {std::uint64_t{0}, last / 2, last}) {
    tokens.read(begin, window);
    expect(std::ranges::equal(window, std::span(all).subspan(begin, window.size())), "a window reads other tokens");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const protrain::fuzz::MemoryFile file(data, size);
  for (const char *type : {"", "uint16", "uint32"}) {
    try {
      tool::TokenFile tokens(file.path(), type);
      read(tokens, size);
    } catch (const tool::Failure &) {
    }
  }
  return 0;
}
