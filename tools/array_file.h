// An array in a .npy or a safetensors file, read row by row along axis 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "array_layout.h"
#include "input_file.h"

namespace tool {

class ArrayFile {
 public:
  // Opens the array `tensor` of a file whose name ends in .safetensors, or else the array of a .npy file. Throws
  // Failure if the file is of neither format, if its elements are not little-endian, or if the array has no axis.
  explicit ArrayFile(const std::string &path, const std::string &tensor = "");

  const std::string &path() const { return file_.path(); }
  protrain_dtype dtype() const { return layout_.dtype; }
  const std::vector<std::int64_t> &shape() const { return layout_.shape; }
  std::uint64_t rows() const { return static_cast<std::uint64_t>(layout_.shape.front()); }
  std::size_t row_bytes() const { return row_bytes_; }  // of shape()[1:]
  void read_row(std::uint64_t index, std::byte *out) const;

 private:
  void order_rows();

  InputFile file_;
  ArrayLayout layout_;
  std::size_t row_bytes_ = 0;
  std::vector<std::byte> ordered_;  // all rows of a column-major array; else empty
};

}  // namespace tool
