// Writes an array in NumPy's .npy format, slice by slice along axis 0. The file has a temporary name until it is
// complete. If a run ends early, no part of the array lies at `path`, and a file that was there before stays.
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
  ~NpyWriter();  // removes what is not finished
  NpyWriter(const NpyWriter &) = delete;
  NpyWriter &operator=(const NpyWriter &) = delete;

  void append(const std::vector<std::byte> &slice);
  void finish();  // puts the file at `path`; throws Failure if not all bytes have reached it

 private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const;

  std::string path_, unfinished_;  // the second is empty once the file is finished
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tool
