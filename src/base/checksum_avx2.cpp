// The build compiles this source alone for AVX2 (cmake/rooms.cmake). Include nothing here that has inline functions of
// its own: the linker could take their copies from this source for the whole library, which must run without AVX2.
// Those of xxhash.h are static.
#include "base/checksum_avx2.h"

#if defined(__x86_64__)
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace protrain {

std::uint64_t checksum_avx2(const void *bytes, std::size_t count, std::uint64_t before) {
  return XXH3_64bits_withSeed(bytes, count, before);
}

}  // namespace protrain
#endif
