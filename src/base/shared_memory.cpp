#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/signals.h"

namespace protrain {

SharedMemory SharedMemory::create(std::uint64_t bytes) {
  const WithheldSignal guard(SIGXFSZ);
  SharedMemory memory(memfd_create("protrain", MFD_CLOEXEC));
  const bool made =
      memory.descriptor_ >= 0 && bytes <= PTRDIFF_MAX && ftruncate(memory.descriptor_, static_cast<off_t>(bytes)) == 0;
  require(made, Code::nomem, "shared memory", "the system refused {} bytes ({})", bytes, std::strerror(errno));
  return memory;
}

SharedMemory SharedMemory::open(const std::string &place, std::uint64_t bytes) {
  SharedMemory memory(::open(place.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  require(memory.descriptor_ >= 0, Code::io, place, "cannot be opened ({})", std::strerror(errno));
  struct stat about {};
  const bool fits = fstat(memory.descriptor_, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 0 &&
                    static_cast<std::uint64_t>(about.st_size) == bytes;
  require(fits, Code::io, place, "is no shared memory of {} bytes", bytes);
  return memory;
}

SharedMemory::~SharedMemory() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string SharedMemory::place() const { return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_); }

void SharedMemory::map_over(std::byte *memory, std::uint64_t bytes, std::uint64_t offset) const {
  require(offset % kPage == 0 && bytes % kPage == 0 && reinterpret_cast<std::uintptr_t>(memory) % kPage == 0,
          Code::internal, "shared memory", "{} bytes from {} on are no whole pages", bytes, offset);
  void *at =
      mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor_, static_cast<off_t>(offset));
  require(at == memory, Code::nomem, "shared memory", "cannot map {} bytes ({})", bytes, std::strerror(errno));
}

}  // namespace protrain
