#include "bench/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
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
  if (has_dot_bf16()) found.bf16_dot = fastest(team, 5, dot_bf16);
  std::vector<float> a(kElements, 1), b(kElements, 2);
  found.bandwidth = fastest(team, 5, [&](Member &member) {
    const Range own = share(kElements, 16, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) a[static_cast<std::size_t>(i)] += b[static_cast<std::size_t>(i)];
    return 3.0 * sizeof(float) * static_cast<double>(own.size());
  });
  return found;
}

}  // namespace protrain::bench
