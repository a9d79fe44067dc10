// Checksums that find damage, not malice: XXH3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace protrain {

std::uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace protrain
