// Writes an array in NumPy's .npy format, slice by slice along axis 0.
#pragma once

#include <protrain.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace tool {

class NpyWriter {
 public:
  // Throws Failure if the file cannot be written, or NumPy has no such type. `shape` is that of the whole array.
  NpyWriter(const std::string &path, protrain_dtype dtype, const std::vector<std::int64_t> &shape);

  void append(const std::vector<std::byte> &slice);
  void finish();  // throws Failure if not all bytes have reached the file

 private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tool
