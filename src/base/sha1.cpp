// SHA-1 as in FIPS 180-4.
#include "base/sha1.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace protrain {

namespace {

// Returns the function f(b, c, d) of one of SHA-1's 80 rounds, plus the constant K of that round.
std::uint32_t mixed(std::size_t round, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  if (round < 20) return ((b & c) | (~b & d)) + 0x5a827999;
  if (round < 40) return (b ^ c ^ d) + 0x6ed9eba1;
  if (round < 60) return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
  return (b ^ c ^ d) + 0xca62c1d6;
}

}  // namespace

void Sha1::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t at = bytes_ % held_.size(), part = std::min(held_.size() - at, bytes.size());
    std::memcpy(held_.data() + at, bytes.data(), part);
    bytes_ += part;
    bytes = bytes.subspan(part);
    if (at + part == held_.size()) block(held_.data());
  }
}

std::string Sha1::hex() {
  const std::uint64_t bits = 8 * bytes_;
  constexpr std::byte kEnd{0x80}, kZero{0};
  add({&kEnd, 1});
  while (bytes_ % held_.size() != 56) add({&kZero, 1});
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  add(length);
  std::string text;
  for (const std::uint32_t word : state_) text += fmt::format("{:08x}", word);
  return text;
}

void Sha1::block(const std::byte *at) {
  std::array<std::uint32_t, 80> w;
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = 0;
    for (std::size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | std::to_integer<std::uint32_t>(at[4 * i + b]);
  }
  for (std::size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = state_;
  for (std::size_t i = 0; i < 80; ++i) {
    const std::uint32_t next = std::rotl(a, 5) + mixed(i, b, c, d) + e + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<std::uint32_t, 5> sum{a, b, c, d, e};
  for (std::size_t i = 0; i < 5; ++i) state_[i] += sum[i];
}

}  // namespace protrain
