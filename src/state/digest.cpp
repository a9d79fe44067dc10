#include "state/digest.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

namespace protrain::state {

namespace {

std::string hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

struct Digest::Running {
  XXH3_state_t state;
};

Digest::Digest() : running_(std::make_unique<Running>()) { XXH3_128bits_reset(&running_->state); }

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&running_->state, bytes.data(), bytes.size());
}

std::string Digest::finish() {
  const std::string text = hex(XXH3_128bits_digest(&running_->state));
  XXH3_128bits_reset(&running_->state);
  return text;
}

std::string digest_of(std::string_view text) { return hex(XXH3_128bits(text.data(), text.size())); }

}  // namespace protrain::state
