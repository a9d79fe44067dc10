// Type, shape and place of an array in a file.
#pragma once

#include <protrain.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tool {

// The places of an array's elements in its file.
struct ArrayLayout {
  protrain_dtype dtype = PROTRAIN_FLOAT32;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;   // of the first element
  bool column_major = false;  // Fortran's order: the first axis varies fastest
};

std::size_t element_bytes(protrain_dtype dtype);
std::string tuple_text(const std::vector<std::int64_t> &shape);  // "(8, 64)"
// True if an array of this type and shape takes `bytes` bytes.
bool takes_bytes(protrain_dtype dtype, const std::vector<std::int64_t> &shape, std::uint64_t bytes);

}  // namespace tool
