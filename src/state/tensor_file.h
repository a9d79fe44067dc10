// The safetensors format: eight bytes of header length (little-endian), a JSON header, then the tensors.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"
#include "base/json.h"
#include "base/shape.h"

namespace protrain::state {

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kHeaderLimit = 100'000'000;  // set by the format
inline constexpr std::uint64_t kDataAlignment = 64;         // of the first tensor, in files that we write

// A tensor and its position in the data after the header.
struct Tensor {
  std::string name;
  Shape shape;
  std::uint64_t begin = 0, end = 0;
  DType dtype = DType::f32;
  bool operator==(const Tensor &) const = default;
};

// Returns the number of bytes in a tensor, or an empty optional on overflow.
std::optional<std::uint64_t> tensor_bytes(const Shape &shape, DType dtype = DType::f32);

// Appends a tensor behind the last one.
void append_tensor(std::vector<Tensor> &tensors, const std::string &name, const Shape &shape, DType dtype = DType::f32);

// Returns the header's length and the header, padded with spaces so that the data starts aligned.
std::string header_of(const std::vector<Tensor> &tensors);

// Reads the header's length from the first eight bytes of `file`, and checks it against the file's size.
std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes, const std::string &file);

// Reads a shape from a JSON array of dimensions. Code::format if `dims` is no such array; `what` names it in errors.
Shape shape_of(const Json &dims, const char *what, const std::string &file);

// Parses a header and returns the tensors in the order of their data. Code::format if the tensors leave gaps in the
// data or overlap; Code::unsupported for types other than F32, F16, BF16 and U8. `file` is for errors.
std::vector<Tensor> parse_header(std::string_view header, std::uint64_t data_bytes, const std::string &file);

// Reads the header of a file of floats, and returns its tensors with positions that count from the begin of the file.
std::vector<Tensor> tensors_of(const File &file);

}  // namespace protrain::state
