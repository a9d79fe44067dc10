#include "bench/ceilings.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PROTRAIN_AMX 1
#endif

namespace protrain::bench {

namespace {

// The number of independent sums: enough to hide an instruction's latency, and few enough for the registers of AVX2.
constexpr int kSums = 12;
constexpr std::int64_t kTurns = 4 << 20, kElements = 32 << 20;
std::atomic<float> sink;  // keeps the compiler from dropping the results

using Work = double (*)(Member &);  // returns the number of operations that the member did

template <int kBytes>
struct Vector {
  typedef float type __attribute__((vector_size(kBytes)));
};

template <int kBytes>
[[gnu::always_inline]] inline double multiply_add() {
  using Register = typename Vector<kBytes>::type;
  Register sums[kSums] = {}, x = sums[0] + 0.999F, y = sums[0] + 0.001F;
  for (int i = 0; i < kSums; ++i) sums[i] += static_cast<float>(i);  // equal sums would be computed once
  for (std::int64_t i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (Register &sum : sums) sum = sum * x + y;
  }
  for (int i = 1; i < kSums; ++i) sums[0] += sums[i];
  sink = sums[0][0];
  return 2.0 * (kBytes / sizeof(float)) * kSums * kTurns;
}

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v4")]] double multiply_add_512(Member &) { return multiply_add<64>(); }
[[gnu::target("arch=x86-64-v3")]] double multiply_add_256(Member &) { return multiply_add<32>(); }
double multiply_add_128(Member &) { return multiply_add<16>(); }

Work widest_multiply_add() {
  if (__builtin_cpu_supports("avx512f")) return multiply_add_512;
  if (__builtin_cpu_supports("fma")) return multiply_add_256;
  return multiply_add_128;
}

[[gnu::target("avx512f,avx512bw,avx512bf16")]] double dot_bf16(Member &) {
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512i ones = _mm512_set1_epi16(0x3F80);
  __m512bh x;
  std::memcpy(&x, &ones, sizeof x);
  for (std::int64_t i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (__m512 &sum : sums) sum = _mm512_dpbf16_ps(sum, x, x);
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  sink = _mm512_cvtss_f32(sums[0]);
  return 2.0 * 32 * kSums * kTurns;
}
bool has_dot_bf16() { return __builtin_cpu_supports("avx512bf16"); }
#else
double multiply_add_128(Member &) { return multiply_add<16>(); }
Work widest_multiply_add() { return multiply_add_128; }
double dot_bf16(Member &) { return 0; }
bool has_dot_bf16() { return false; }
#endif

#ifdef PROTRAIN_AMX
// Returns true if the processor multiplies tiles of bfloat16 and the system lets this process use them.
bool may_multiply_tiles() {
  constexpr int kAskForState = 0x1023, kTileData = 18;  // of Linux's arch_prctl
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bit_AMX_BF16) != 0 && (d & bit_AMX_TILE) != 0;
  return has && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

// The shapes of AMX's tile registers: all eight tiles have 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// These are constants because GCC 12 does not know that instructions on tiles read memory, and might drop what is
// stored for them.
constexpr TileShapes kTileShapes;
alignas(64) constexpr std::array<std::uint16_t, 16 * 32> kOnes = [] {
  std::array<std::uint16_t, 16 * 32> ones{};
  ones.fill(0x3F80);
  return ones;
}();

// Multiplies the same four tiles of ones again and again. They stay in registers, as do the four tiles of sums, so
// memory does not limit the speed.
[[gnu::target("amx-tile,amx-bf16")]] double multiply_tiles(Member &) {
  _tile_loadconfig(&kTileShapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, kOnes.data(), 64);
  _tile_loadd(5, kOnes.data(), 64);
  _tile_loadd(6, kOnes.data(), 64);
  _tile_loadd(7, kOnes.data(), 64);
  for (std::int64_t i = 0; i < kTurns; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 4 * kTurns;
}
#else
bool may_multiply_tiles() { return false; }
double multiply_tiles(Member &) { return 0; }
#endif

// The work of the whole team per second, in the fastest of a few tries. `act` returns the work of one member.
template <typename Act>
double fastest(Team &team, int tries, Act act) {
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    std::vector<double> done(static_cast<std::size_t>(team.size()));
    const auto begin = std::chrono::steady_clock::now();
    team.enter([&] { team.run([&](Member &member) { done[static_cast<std::size_t>(member.index)] = act(member); }); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    double total = 0;
    for (double of : done) total += of;
    best = std::max(best, total / took.count());
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(Team &team) {
  Ceilings found;
  found.fma = fastest(team, 5, widest_multiply_add());
  if (may_multiply_tiles())
    found.bf16_dot = fastest(team, 5, multiply_tiles);
  else if (has_dot_bf16())
    found.bf16_dot = fastest(team, 5, dot_bf16);
  std::vector<float> a(kElements, 1), b(kElements, 2);
  found.bandwidth = fastest(team, 5, [&](Member &member) {
    const Range own = share(kElements, 16, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) a[static_cast<std::size_t>(i)] += b[static_cast<std::size_t>(i)];
    return 3.0 * sizeof(float) * static_cast<double>(own.size());
  });
  return found;
}

}  // namespace protrain::bench
