// A regular file that is read in parts, so that it may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tool {

class InputFile {
 public:
  explicit InputFile(std::string path);  // throws Failure with the path and the reason
  ~InputFile();
  InputFile(InputFile &&other) noexcept;
  InputFile &operator=(InputFile &&) = delete;

  const std::string &path() const { return path_; }
  std::uint64_t size() const { return size_; }
  void read(std::uint64_t offset, void *out, std::size_t bytes) const;  // reads all bytes, or throws Failure

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace tool
