#include "backend/cpu/amx.h"

#include <algorithm>

#include "backend/cpu/onednn.h"
#include "backend/cpu/packing.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace protrain::backend::cpu {

#if defined(__x86_64__)
namespace {
constexpr std::int64_t kTileSide = 16;    // rows of a tile, and columns of a tile of sums
constexpr std::int64_t kTileDepth = 32;   // columns of a tile of a
constexpr std::int64_t kBlocksAhead = 2;  // blocks of b that are fetched before they are multiplied

// Asks the system to let the process use the tiles, which belong to a thread's state. The answer counts for all
// threads.
bool is_permitted() {
  constexpr long kRequestState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
}

// The thread's description of its eight tiles, as the processor reads it.
struct alignas(64) Tiles {
  std::uint8_t palette = 1, first_row = 0, unused[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Describes tiles for a panel of up to 32 rows: 0 to 3 hold sums, 4 and 5 hold a, and 6 and 7 hold b. The upper rows of
// the panel lie in the tiles 0, 1 and 4, and the lower ones in 2, 3 and 5.
Tiles tiles_for(std::int64_t rows) {
  const auto upper = static_cast<std::uint8_t>(std::min(rows, kTileSide));
  const auto lower = static_cast<std::uint8_t>(rows - upper);
  Tiles tiles;
  const std::uint8_t heights[] = {upper, upper, lower, lower, upper, lower, kTileSide, kTileSide};
  std::ranges::copy(heights, tiles.rows);
  for (int i = 0; i < 8; ++i) tiles.row_bytes[i] = tiles.rows[i] > 0 ? 64 : 0;
  return tiles;
}

// Computes the sums of two tiles' columns, in up to 32 rows. `tail` holds the columns of a that fill a tile only in
// part, filled up with zeros.
struct Step {
  const bf16 *a;
  std::int64_t a_row_bytes;
  const bf16 *tail;  // null if there is none
  const bf16 *b;
  float *sums;
  std::int64_t sums_row_bytes;
  std::int64_t whole_tiles;  // of a
};

template <bool kLower>
[[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void add_products(const bf16 *a, std::int64_t row_bytes,
                                                                                  const bf16 *b) {
  constexpr std::int64_t kBlockRow = kPackedColumns * 2 * sizeof(bf16);  // bytes of two interleaved rows
  _tile_loadd(4, a, row_bytes);
  _tile_loadd(6, b, kBlockRow);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, b + 2 * kTileSide, kBlockRow);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kLower) {
    _tile_loadd(5, a + kTileSide * row_bytes / static_cast<std::int64_t>(sizeof(bf16)), row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Fetches two tiles of b into the first-level cache. Products then wait less for loads. That makes them a quarter
// faster if another thread of the core is busy, and no slower otherwise.
inline void prefetch_tiles(const bf16 *b) {
  constexpr std::int64_t kLine = 64 / sizeof(bf16);
  for (std::int64_t row = 0; row < kTileSide; ++row, b += 2 * kPackedColumns) {
    __builtin_prefetch(b);
    __builtin_prefetch(b + kLine);
  }
}

template <bool kLower>
[[gnu::target("amx-tile,amx-bf16")]] void multiply_tiles(const Step &at, bool accumulate) {
  float *lower = at.sums + kTileSide * at.sums_row_bytes / static_cast<std::int64_t>(sizeof(float));
  if (accumulate) {
    _tile_loadd(0, at.sums, at.sums_row_bytes);
    _tile_loadd(1, at.sums + kTileSide, at.sums_row_bytes);
    if constexpr (kLower) {
      _tile_loadd(2, lower, at.sums_row_bytes);
      _tile_loadd(3, lower + kTileSide, at.sums_row_bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kLower) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  const bf16 *a = at.a, *b = at.b;
  for (std::int64_t i = 0; i < at.whole_tiles; ++i, a += kTileDepth, b += kTileDepth * kPackedColumns) {
    add_products<kLower>(a, at.a_row_bytes, b);
    prefetch_tiles(b + kBlocksAhead * kTileDepth * kPackedColumns);
  }
  if (at.tail) add_products<kLower>(at.tail, kTileDepth * sizeof(bf16), b);
  _tile_stored(0, at.sums, at.sums_row_bytes);
  _tile_stored(1, at.sums + kTileSide, at.sums_row_bytes);
  if constexpr (kLower) {
    _tile_stored(2, lower, at.sums_row_bytes);
    _tile_stored(3, lower + kTileSide, at.sums_row_bytes);
  }
}

// Makes the compiler write to memory all that `at` may point at. It does not know how much the instructions read.
void write_out(const void *at) { asm volatile("" : : "r"(at) : "memory"); }

[[gnu::target("amx-tile")]] void load(const Tiles &tiles) {
  write_out(&tiles);
  _tile_loadconfig(&tiles);
}

// Keeps the description of the tiles that another library may have left in this thread, and puts it back.
class TilesOfCaller {
 public:
  [[gnu::target("amx-tile")]] TilesOfCaller() {
    _tile_storeconfig(&tiles_);
    write_out(&tiles_);
  }
  [[gnu::target("amx-tile")]] ~TilesOfCaller() {
    if (tiles_.palette == 0)
      _tile_release();
    else
      load(tiles_);
  }
  TilesOfCaller(const TilesOfCaller &) = delete;
  TilesOfCaller &operator=(const TilesOfCaller &) = delete;

 private:
  Tiles tiles_;
};
}  // namespace

bool has_amx() {
  static const bool has = onednn_uses(dnnl::cpu_isa::avx512_core_amx) && is_permitted();
  return has;
}

void multiply_with_amx(const AmxOperands &at, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                       bool accumulate) {
  const TilesOfCaller of_caller;
  const std::int64_t whole = depth / kTileDepth, rest = depth % kTileDepth;
  const std::int64_t block_column = packed_rows(depth, DType::bf16) * kPackedColumns;
  alignas(64) bf16 tail[kAmxRows * kTileDepth] = {};
  for (std::int64_t row = 0; row < rows; row += kAmxRows) {
    const std::int64_t height = std::min(kAmxRows, rows - row);
    const bf16 *a = at.a.at + row * at.a.ld;
    if (row == 0 || height < kAmxRows) load(tiles_for(height));
    if (rest > 0) copy_rows<bf16>({a + whole * kTileDepth, at.a.ld}, height, rest, {tail, kTileDepth});
    write_out(tail);
    for (std::int64_t column = 0; column < columns; column += kAmxColumns) {
      const Step step{.a = a,
                      .a_row_bytes = at.a.ld * static_cast<std::int64_t>(sizeof(bf16)),
                      .tail = rest > 0 ? tail : nullptr,
                      .b = at.b + column / kPackedColumns * block_column + column % kPackedColumns * 2,
                      .sums = at.sums.at + row * at.sums.ld + column,
                      .sums_row_bytes = at.sums.ld * static_cast<std::int64_t>(sizeof(float)),
                      .whole_tiles = whole};
      if (height > kTileSide)
        multiply_tiles<true>(step, accumulate);
      else
        multiply_tiles<false>(step, accumulate);
    }
  }
}
#else
bool has_amx() { return false; }
void multiply_with_amx(const AmxOperands &, std::int64_t, std::int64_t, std::int64_t, bool) {}
#endif

}  // namespace protrain::backend::cpu
