// Reads with pread: if the file were mapped, truncating it would raise a signal.
#include "input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "handles.h"

namespace tool {

InputFile::InputFile(std::string path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0)
    throw Failure(fmt::format("{}: {}", path_, std::strerror(errno)));
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (S_ISREG(status.st_mode)) return;
  close(descriptor_);
  throw Failure(fmt::format("{}: not a regular file", path_));
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

InputFile::InputFile(InputFile &&other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

void InputFile::read(std::uint64_t offset, void *out, std::size_t bytes) const {
  auto *to = static_cast<char *>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Failure(fmt::format("{}: {}", path_, std::strerror(errno)));
    if (got == 0) throw Failure(fmt::format("{}: ends {} bytes too early", path_, bytes));
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace tool
