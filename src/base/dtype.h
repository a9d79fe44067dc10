// Element types: names, sizes, kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain {

enum class DType : std::uint8_t { none, f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };

std::size_t size_of(DType dtype);          // bytes of one element; 0 for none
std::string_view name_of(DType dtype);     // "float32", "int64", "bool", ...
DType dtype_named(std::string_view name);  // DType::none where there is no such type
bool is_float(DType dtype);
bool fits_float32(DType dtype);  // floats that are no wider than float32
bool is_integer(DType dtype);    // bool is neither float nor integer

}  // namespace protrain
