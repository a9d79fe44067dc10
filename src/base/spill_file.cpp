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
#include "base/signals.h"

namespace protrain {

namespace {

// Parts of 256 KiB to 4 MiB, with 4 to 32 requests in flight, were tried on a virtual disk that reads 4 and writes 9
// GB/s. None was faster than these two numbers. Parts of 256 KiB take two to four times as much of the system's time.
constexpr std::uint64_t kPart = 1 << 20;  // bytes of a transfer per request
constexpr unsigned kDepth = 8;            // requests in flight

// The system calls. Tests make each of them fail.
int sys_open(const char *path, int flags) { return ::open(path, flags | O_CLOEXEC, 0600); }
int sys_make_temporary(char *pattern, int flags) { return ::mkostemp(pattern, flags | O_CLOEXEC); }
int sys_allocate(int descriptor, off_t bytes) {
  const BlockedSignals blocked;  // a signal would interrupt the call, and a file in memory would have to begin anew
  const WithheldSignal guard(SIGXFSZ);
  return ::posix_fallocate(descriptor, 0, bytes);
}
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
  Ring() { usable = made = io_uring_queue_init(kDepth, &ring, 0) == 0; }
  ~Ring() {
    if (made) io_uring_queue_exit(&ring);
  }

  // Asks the ring to transfer a part of the file. `slot` is a number below kDepth that no request in flight has. If the
  // ring does not accept the request, `usable` becomes false for good.
  void ask(int descriptor, std::uint64_t offset, std::span<std::byte> part, bool writes, std::size_t slot) {
    io_uring_sqe *request = io_uring_get_sqe(&ring);
    const auto bytes = static_cast<unsigned>(part.size());
    writes ? io_uring_prep_write(request, descriptor, part.data(), bytes, offset)
           : io_uring_prep_read(request, descriptor, part.data(), bytes, offset);
    io_uring_sqe_set_data64(request, slot);
    moved[slot] = 0;
    usable = io_uring_submit(&ring) == 1;
    in_flight[slot] = usable;
  }

  // Waits for the request of a slot. Returns how many bytes the request moved. A failed request moved too few.
  std::uint64_t finish(std::size_t slot) {
    while (in_flight[slot]) take_answer();
    return moved[slot];
  }

  void finish_all() {
    for (std::size_t slot = 0; slot < kDepth; ++slot) finish(slot);
  }

  bool usable = false;

 private:
  void take_answer() {
    io_uring_cqe *answer = nullptr;
    if (const int error = io_uring_wait_cqe(&ring, &answer); error != 0) {
      if (error != -EINTR) usable = false;  // no more requests; those in flight must still end, as they use the memory
      return;
    }
    const std::size_t slot = io_uring_cqe_get_data64(answer);
    if (answer->res > 0) moved[slot] = static_cast<std::uint64_t>(answer->res);
    in_flight[slot] = false;
    io_uring_cqe_seen(&ring, answer);
  }

  io_uring ring{};
  bool made = false;
  std::array<bool, kDepth> in_flight{};
  std::array<std::uint64_t, kDepth> moved{};  // per slot: bytes
};

SpillFile::Direction::Direction(bool to_file)
    : writes(to_file), ring(std::make_unique<Ring>()), bounce(kPart, "spill file") {}

SpillFile::Direction::~Direction() = default;

SpillFile::SpillFile(const std::string &directory, std::uint64_t bytes) : directory_(directory) {
  open(directory, round_up(bytes, kDiskAlignment));
}

bool SpillFile::queued() const { return reading_.ring->usable && writing_.ring->usable; }

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
  const WithheldSignal guard(SIGXFSZ);
  if (find(offset, from.size()) == nullptr) declare(offset, from.size());
  Region &target = *find(offset, from.size());
  target.written = false;  // until the write is complete
  const std::uint64_t whole = from.size() / kDiskAlignment * kDiskAlignment, rest = from.size() - whole;
  target.checksum = transfer(writing_, offset, {const_cast<std::byte *>(from.data()), whole});
  if (rest > 0) {
    std::memcpy(writing_.bounce.data(), from.data() + whole, rest);
    transfer_plain(writing_, offset + whole, {writing_.bounce.data(), kDiskAlignment});
    target.checksum = checksum(from.subspan(whole), target.checksum);
  }
  target.written = true;
}

void SpillFile::read(std::uint64_t offset, std::span<std::byte> to) {
  const Region *source = find(offset, to.size());
  require(source != nullptr && source->written, Code::corrupt, directory_,
          "{} bytes at {} are read and were never written", to.size(), offset);
  const std::uint64_t whole = to.size() / kDiskAlignment * kDiskAlignment, rest = to.size() - whole;
  std::uint64_t sum = transfer(reading_, offset, to.first(whole));
  if (rest > 0) {
    transfer_plain(reading_, offset + whole, {reading_.bounce.data(), kDiskAlignment});
    std::memcpy(to.data() + whole, reading_.bounce.data(), rest);
    sum = checksum(to.subspan(whole), sum);
  }
  require(sum == source->checksum, Code::corrupt, directory_,
          "{} bytes at {} of the file for what does not fit in memory came back changed; suspect the disk", to.size(),
          offset);
}

std::uint64_t SpillFile::transfer(const Direction &way, std::uint64_t offset, std::span<std::byte> memory) {
  if (suits_disk(memory.data()) && way.ring->usable) return transfer_queued(way, offset, memory);
  const bool bounces = !suits_disk(memory.data());
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < memory.size(); at += kPart) {
    const std::span<std::byte> part = memory.subspan(at, std::min(kPart, memory.size() - at));
    if (bounces && way.writes) std::memcpy(way.bounce.data(), part.data(), part.size());
    transfer_plain(way, offset + at, bounces ? std::span(way.bounce.data(), part.size()) : part);
    if (bounces && !way.writes) std::memcpy(part.data(), way.bounce.data(), part.size());
    sum = checksum(part, sum);
  }
  return sum;
}

void SpillFile::transfer_plain(const Direction &way, std::uint64_t offset, std::span<std::byte> memory) {
  for (std::uint64_t done = 0; done < memory.size();) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t moved = way.writes ? sys_write_at(descriptor_, memory.data() + done, memory.size() - done, at)
                                     : sys_read_at(descriptor_, memory.data() + done, memory.size() - done, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0)
      refuse(directory_, fmt::format("{} {} bytes", way.writes ? "write" : "read", memory.size()),
             moved < 0 ? errno : EIO);
    done += static_cast<std::uint64_t>(moved);
  }
}

// Transfers memory through io_uring, with up to kDepth parts in flight, and returns the checksum. A write computes the
// checksum of a part while the part is in flight. A read computes it after the part has arrived, while the next parts
// are in flight. If a request failed or moved only some of its bytes, transfer_plain() moves the remaining bytes, and
// reports an error if there is one.
std::uint64_t SpillFile::transfer_queued(const Direction &way, std::uint64_t offset, std::span<std::byte> memory) {
  Ring &ring = *way.ring;
  const auto part = [&](std::uint64_t at) { return memory.subspan(at, std::min(kPart, memory.size() - at)); };
  const auto slot = [](std::uint64_t at) { return at / kPart % kDepth; };
  std::uint64_t sum = 0, asked = 0;
  for (std::uint64_t at = 0; at < memory.size(); at += kPart) {
    for (; ring.usable && asked < std::min<std::uint64_t>(at + kDepth * kPart, memory.size()); asked += kPart)
      ring.ask(descriptor_, offset + asked, part(asked), way.writes, slot(asked));
    if (way.writes) sum = checksum(part(at), sum);
    const std::uint64_t moved = at < asked ? ring.finish(slot(at)) : 0;
    if (moved < part(at).size()) {
      ring.finish_all();  // an error may leave this function
      transfer_plain(way, offset + at + moved, part(at).subspan(moved));
    }
    if (!way.writes) sum = checksum(part(at), sum);
  }
  return sum;
}

}  // namespace protrain
