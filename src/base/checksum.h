// Checksums (XXH3) that find accidental damage, not deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace protrain {

// Returns a checksum of the bytes. For bytes in several parts, pass the checksum of the earlier parts as `before`.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t before = 0);

// Computes the 128-bit checksum of bytes that arrive in parts. The result is 32 hex digits.
class Digest {
 public:
  Digest();
  ~Digest();
  void add(std::span<const std::byte> bytes);
  std::string finish();  // the digest of everything added since the last finish()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(std::string_view text);

}  // namespace protrain
