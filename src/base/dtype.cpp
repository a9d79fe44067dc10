#include "base/dtype.h"

#include <array>

namespace protrain {

namespace {
struct Row {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<Row, 14> kTable{{{DType::none, "none", 0},
                                      {DType::f32, "float32", 4},
                                      {DType::f64, "float64", 8},
                                      {DType::f16, "float16", 2},
                                      {DType::bf16, "bfloat16", 2},
                                      {DType::i8, "int8", 1},
                                      {DType::i16, "int16", 2},
                                      {DType::i32, "int32", 4},
                                      {DType::i64, "int64", 8},
                                      {DType::u8, "uint8", 1},
                                      {DType::u16, "uint16", 2},
                                      {DType::u32, "uint32", 4},
                                      {DType::u64, "uint64", 8},
                                      {DType::boolean, "bool", 1}}};
}  // namespace

std::size_t size_of(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].bytes; }

std::string_view name_of(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].name; }

DType dtype_named(std::string_view name) {
  for (const Row &row : kTable)
    if (row.name == name) return row.dtype;
  return DType::none;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

bool fits_float32(DType dtype) { return is_float(dtype) && dtype != DType::f64; }

bool is_integer(DType dtype) { return dtype != DType::none && dtype != DType::boolean && !is_float(dtype); }

}  // namespace protrain
