#include "base/spill_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain {

namespace {

constexpr std::uint64_t kPart = 1 << 20;  // bytes of a transfer per request
constexpr unsigned kDepth = 8;            // requests in flight

// The system calls. Tests make each of them fail.
int sys_open(const char *path, int flags) { return ::open(path, flags | O_CLOEXEC, 0600); }
int sys_make_temporary(char *pattern, int flags) { return ::mkostemp(pattern, flags | O_CLOEXEC); }
int sys_allocate(int descriptor, off_t bytes) { return ::posix_fallocate(descriptor, 0, bytes); }
ssize_t sys_read_at(int descriptor, void *to, std::size_t bytes, off_t offset) {
  return ::pread(descriptor, to, bytes, offset);
}
ssize_t sys_write_at(int descriptor, const void *from, std::size_t bytes, off_t offset) {
  return ::pwrite(descriptor, from, bytes, offset);
}

[[noreturn]] void refuse(const std::string &directory, const std::string &what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const Code code = full ? Code::nospc : error == ENOMEM ? Code::nomem : Code::io;
  fail(code, directory, "cannot {} there: {}", what, std::generic_category().message(error));
}

// Opens a file without a name, or one whose name is removed at once.
int open_unnamed(const std::string &directory, int flags) {
  const int descriptor = sys_open(directory.c_str(), O_TMPFILE | O_RDWR | flags);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return descriptor;
  std::string pattern = directory + "/.protrain-XXXXXX";
  const int named = sys_make_temporary(pattern.data(), flags);
  if (named >= 0) ::unlink(pattern.c_str());
  return named;
}

bool suits_disk(const void *memory) { return reinterpret_cast<std::uintptr_t>(memory) % kDiskAlignment == 0; }

}  // namespace

struct SpillFile::Ring {
  Ring() { made = io_uring_queue_init(kDepth, &ring, 0) == 0; }
  ~Ring() {
    if (made) io_uring_queue_exit(&ring);
  }

  // Moves up to kDepth parts at once, and sets moved[i] to the number of bytes moved of part i. Returns false if the
  // ring did not accept all parts; the ring cannot be used again then. On return all accepted requests are finished.
  bool move(int descriptor, std::uint64_t offset, std::span<std::byte> memory, bool writes,
            std::array<std::uint64_t, kDepth> &moved) {
    int prepared = 0;
    for (std::uint64_t at = 0; at < memory.size(); at += kPart, ++prepared) {
      const auto part = static_cast<unsigned>(std::min(kPart, memory.size() - at));
      io_uring_sqe *request = io_uring_get_sqe(&ring);
      writes ? io_uring_prep_write(request, descriptor, memory.data() + at, part, offset + at)
             : io_uring_prep_read(request, descriptor, memory.data() + at, part, offset + at);
      io_uring_sqe_set_data64(request, static_cast<std::uint64_t>(prepared));
    }
    const int taken = io_uring_submit(&ring);
    for (int left = taken; left > 0;) {
      io_uring_cqe *answer = nullptr;
      if (io_uring_wait_cqe(&ring, &answer) != 0) continue;  // interrupted by a signal
      if (answer->res > 0) moved[io_uring_cqe_get_data64(answer)] = static_cast<std::uint64_t>(answer->res);
      io_uring_cqe_seen(&ring, answer);
      --left;
    }
    return taken == prepared;
  }

  io_uring ring{};
  bool made = false;
};

SpillFile::SpillFile(const std::string &directory, std::uint64_t bytes)
    : directory_(directory), ring_(std::make_unique<Ring>()), bounce_(kPart, "spill file") {
  if (!ring_->made) ring_.reset();
  open(directory, round_up(bytes, kDiskAlignment));
}

SpillFile::~SpillFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SpillFile::open(const std::string &directory, std::uint64_t bytes) {
  struct stat found {};
  require(::stat(directory.c_str(), &found) != 0 || S_ISDIR(found.st_mode), Code::path, directory, "not a directory");
  descriptor_ = open_unnamed(directory, O_DIRECT);
  direct_ = descriptor_ >= 0;
  if (!direct_ && errno == EINVAL) descriptor_ = open_unnamed(directory, 0);
  if (descriptor_ < 0) refuse(directory, "make a file", errno);
  if (const int error = sys_allocate(descriptor_, static_cast<off_t>(bytes)); error != 0) {
    ::close(std::exchange(descriptor_, -1));  // the constructor throws next, so no destructor will close it
    refuse(directory, fmt::format("take {} bytes", bytes), error);
  }
}

void SpillFile::declare(std::uint64_t offset, std::uint64_t bytes) {
  require(offset % kDiskAlignment == 0 && bytes > 0, Code::internal, directory_, "a region of {} bytes at {}", bytes,
          offset);
  const auto before = [](const Region &a, const Region &b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  };
  const Region fresh{.offset = offset, .bytes = bytes};
  const auto at = std::ranges::lower_bound(regions_, fresh, before);
  if (at == regions_.end() || before(fresh, *at)) regions_.insert(at, fresh);
}

SpillFile::Region *SpillFile::find(std::uint64_t offset, std::uint64_t bytes) {
  const auto at = std::ranges::lower_bound(regions_, std::pair(offset, bytes), {},
                                           [](const Region &r) { return std::pair(r.offset, r.bytes); });
  return at != regions_.end() && at->offset == offset && at->bytes == bytes ? &*at : nullptr;
}

void SpillFile::write(std::uint64_t offset, std::span<const std::byte> from) {
  if (find(offset, from.size()) == nullptr) declare(offset, from.size());
  Region &target = *find(offset, from.size());
  target.written = false;  // until the write is complete
  const std::uint64_t whole = from.size() / kDiskAlignment * kDiskAlignment, rest = from.size() - whole;
  if (whole > 0) transfer(offset, const_cast<std::byte *>(from.data()), whole, true);
  if (rest > 0) {
    std::memcpy(bounce_.data(), from.data() + whole, rest);
    transfer(offset + whole, bounce_.data(), kDiskAlignment, true);
  }
  target.checksum = checksum(from);
  target.written = true;
}

void SpillFile::read(std::uint64_t offset, std::span<std::byte> to) {
  const Region *source = find(offset, to.size());
  require(source != nullptr && source->written, Code::corrupt, directory_,
          "{} bytes at {} are read and were never written", to.size(), offset);
  const std::uint64_t whole = to.size() / kDiskAlignment * kDiskAlignment, rest = to.size() - whole;
  if (whole > 0) transfer(offset, to.data(), whole, false);
  if (rest > 0) {
    transfer(offset + whole, bounce_.data(), kDiskAlignment, false);
    std::memcpy(to.data() + whole, bounce_.data(), rest);
  }
  require(checksum(to) == source->checksum, Code::corrupt, directory_,
          "{} bytes at {} of the file for what does not fit in memory came back changed; suspect the disk", to.size(),
          offset);
}

void SpillFile::transfer(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes) {
  if (suits_disk(memory))
    return ring_ ? transfer_queued(offset, memory, bytes, writes) : transfer_plain(offset, memory, bytes, writes);
  for (std::uint64_t at = 0; at < bytes; at += kPart) {
    const std::uint64_t part = std::min(kPart, bytes - at);
    if (writes) std::memcpy(bounce_.data(), memory + at, part);
    transfer_plain(offset + at, bounce_.data(), part, writes);
    if (!writes) std::memcpy(memory + at, bounce_.data(), part);
  }
}

void SpillFile::transfer_plain(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes) {
  for (std::uint64_t done = 0; done < bytes;) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t moved = writes ? sys_write_at(descriptor_, memory + done, bytes - done, at)
                                 : sys_read_at(descriptor_, memory + done, bytes - done, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0)
      refuse(directory_, fmt::format("{} {} bytes", writes ? "write" : "read", bytes), moved < 0 ? errno : EIO);
    done += static_cast<std::uint64_t>(moved);
  }
}

// Moves as many parts at a time as the ring holds, and waits for all of them. If a request failed or moved only some of
// its bytes, transfer_plain() moves the rest and reports an error if there is one.
void SpillFile::transfer_queued(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes) {
  for (std::uint64_t begun = 0; begun < bytes && ring_;) {
    std::array<std::uint64_t, kDepth> moved{};
    const std::uint64_t end = std::min(begun + kDepth * kPart, bytes);
    const std::span<std::byte> all(memory + begun, end - begun);
    if (!ring_->move(descriptor_, offset + begun, all, writes, moved)) ring_.reset();
    for (std::size_t part = 0; begun < end; ++part) {
      const std::uint64_t size = std::min(kPart, end - begun);
      if (moved[part] < size)
        transfer_plain(offset + begun + moved[part], memory + begun + moved[part], size - moved[part], writes);
      begun += size;
    }
    if (!ring_ && begun < bytes) transfer_plain(offset + begun, memory + begun, bytes - begun, writes);
  }
}

}  // namespace protrain
