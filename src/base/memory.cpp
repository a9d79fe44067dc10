#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/text.h"

namespace protrain {

namespace {
constexpr std::uint64_t kHugePage = 2 << 20, kPage = 4096;

std::uint64_t left_of(int resource, std::uint64_t used) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return cgroup::kUnlimited;
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}
}  // namespace

MemoryBlock::MemoryBlock(std::uint64_t bytes, const std::string &subject) : bytes_(bytes) {
  if (bytes == 0) return;
  void *at = bytes > PTRDIFF_MAX ? MAP_FAILED
                                 : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    fail(Code::nomem, subject, "the system refused {} bytes ({}); {} are available", bytes, std::strerror(ENOMEM),
         available_memory());
  data_ = static_cast<std::byte *>(at);
  // Asks for huge pages, because work on large tensors in small pages loses much time to TLB misses. A refusal does no
  // harm.
  if (bytes >= 2 * kHugePage) madvise(at, bytes, MADV_HUGEPAGE);
}

MemoryBlock::~MemoryBlock() {
  if (data_) munmap(data_, bytes_);
}

void populate(std::byte *memory, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE  // kernels since 5.14
  const auto begin = reinterpret_cast<std::uintptr_t>(memory) / kPage * kPage;
  const std::uint64_t whole = reinterpret_cast<std::uintptr_t>(memory) + bytes - begin;
  if (bytes > 0 && madvise(reinterpret_cast<void *>(begin), whole, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (std::uint64_t at = 0; at < bytes; at += kPage) {
    auto *byte = const_cast<volatile std::byte *>(memory + at);
    *byte = *byte;
  }
}

void require_mappable(std::uint64_t bytes, const std::string &subject) { const MemoryBlock taken(bytes, subject); }

void require_heap(std::size_t bytes, const std::string &subject) {
  // The volatile pointer keeps the compiler from removing a malloc whose block is freed unused.
  static void *(*volatile const take)(std::size_t) = &std::malloc;
  void *const taken = take(bytes);
  require(taken != nullptr, Code::nomem, subject, "the system refused {} bytes", bytes);
  std::free(taken);
}

std::uint64_t available_memory(const std::string &root) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t least = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page;
  if (const auto kib = cgroup::number_in(root + "/proc/meminfo", "MemAvailable:")) least = std::min(least, *kib * 1024);
  least = std::min(least, cgroup::free_memory(root));
  // The file statm holds these numbers, in pages: size resident shared text lib data dt.
  const std::vector<std::string> statm = cgroup::words_of(cgroup::text_of(root + "/proc/self/statm"));
  const auto pages = [&](std::size_t i) {
    return i < statm.size() ? static_cast<std::uint64_t>(parse_integer(statm[i]).value_or(0)) : 0;
  };
  const std::uint64_t size = pages(0), data = pages(5);
  return std::min({least, left_of(RLIMIT_AS, size * page), left_of(RLIMIT_DATA, data * page)});
}

}  // namespace protrain
