// Arrays in NumPy's .npy format, read slice by slice along axis 0.
#pragma once

#include <protrain.h>

#include <string>
#include <vector>

#include "input_file.h"

namespace tool {

// NumPy's name of a type, such as "<f4", and the bytes of an element. Both throw Failure for a type that NumPy lacks.
std::string npy_descr(protrain_dtype dtype, const std::string &path);
std::size_t npy_bytes(protrain_dtype dtype);

class NpyFile {
 public:
  explicit NpyFile(const std::string &path);  // throws Failure unless it is a row-major, little-endian array

  const std::string &path() const { return file_.path(); }
  protrain_dtype dtype() const { return dtype_; }
  const std::vector<std::int64_t> &shape() const { return shape_; }
  std::size_t slice_bytes() const { return slice_bytes_; }     // of shape()[1:]
  void read_slice(std::uint64_t index, std::byte *out) const;  // index below shape()[0]

 private:
  void parse(const std::string &header);

  InputFile file_;
  protrain_dtype dtype_ = PROTRAIN_FLOAT32;
  std::vector<std::int64_t> shape_;
  std::uint64_t data_offset_ = 0;
  std::size_t slice_bytes_ = 0;
};

}  // namespace tool
