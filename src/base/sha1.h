// SHA-1, for checksums that a file format prescribes. It is no defence against deliberate forgery.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace protrain {

class Sha1 {
 public:
  void add(std::span<const std::byte> bytes);
  std::string hex();  // 40 lower-case digits; nothing can be added afterwards

 private:
  void block(const std::byte *at);  // 64 bytes

  std::array<std::uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<std::byte, 64> held_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace protrain
