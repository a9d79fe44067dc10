#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include "base/checksum_avx2.h"

namespace protrain {

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t before) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return checksum_avx2(bytes.data(), bytes.size(), before);
#endif
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

struct Digest::State {
  XXH3_state_t state;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) { XXH3_128bits_update(&state_->state, bytes.data(), bytes.size()); }

std::string Digest::finish() {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->state);
  XXH3_128bits_reset(&state_->state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest_of(std::string_view text) {
  Digest digest;
  digest.add(std::as_bytes(std::span(text)));
  return digest.finish();
}

}  // namespace protrain
