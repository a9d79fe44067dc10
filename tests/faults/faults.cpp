#include "faults/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <liburing.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <string_view>

#define STANDS_IN extern "C" __attribute__((visibility("default")))

STANDS_IN void *__libc_malloc(size_t);
STANDS_IN void *__libc_calloc(size_t, size_t);
STANDS_IN void *__libc_realloc(void *, size_t);
STANDS_IN void *__libc_memalign(size_t, size_t);
STANDS_IN void __libc_free(void *);

namespace protrain::test {

namespace {

std::atomic<bool> armed{false}, any_fired{false};
Fault present;
std::atomic<std::uint64_t> calls{0};
std::uint64_t *stack_hashes = nullptr;
bool showing = false;
thread_local int unarmed = 0;
thread_local bool makes_thread = false;  // inside pthread_create

constexpr int kDepth = 24;  // frames of a shown stack
constexpr int kSite = 10;   // frames in the hash that identifies the place of a call
constexpr int kOwn = 2;     // frames of this file, left out of the hash

std::uint64_t hash_of_stack() {
  void *frames[kSite + kOwn];
  ++unarmed;
  const int depth = backtrace(frames, kSite + kOwn);
  --unarmed;
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (int i = kOwn; i < depth; ++i) hash = (hash ^ reinterpret_cast<std::uintptr_t>(frames[i])) * 0x100000001B3u;
  return hash;
}

void show_stack() {
  void *frames[kDepth];
  ++unarmed;
  backtrace_symbols_fd(frames, backtrace(frames, kDepth), 2);
  --unarmed;
}

// Counts a call, and returns true if this call must fail.
__attribute__((noinline)) bool fails(Kind kind) {
  if (!armed.load(std::memory_order_relaxed) || kind != present.kind || unarmed > 0) return false;
  const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
  if (stack_hashes != nullptr && call < kMostCalls) stack_hashes[call] = hash_of_stack();
  const bool now = call == present.at || (present.from_then_on && call > present.at);
  if (now && !any_fired.exchange(true) && showing) {
    dprintf(2, "-- call %lu fails here:\n", static_cast<unsigned long>(call));
    show_stack();
  }
  return now;
}

// The call stack that allocated a block of memory.
struct AllocationRecord {
  void *stack[kDepth];
  int depth = 0;
};
// A hash table with open addressing. It holds the addresses of all allocated blocks; kGone marks a removed one.
constexpr std::size_t kSlots = 1 << 20;
void *const kGone = reinterpret_cast<void *>(1);
void *slots[kSlots];
AllocationRecord *shown = nullptr;  // one for each slot; nullptr before show_stacks()
std::atomic<bool> tracking{false};
std::atomic_flag busy;
std::size_t taken = 0;
std::atomic<std::size_t> spent_by_onednn{0};
std::atomic<bool> all_of_onednn{false};

struct TableLock {
  TableLock() {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~TableLock() { busy.clear(std::memory_order_release); }
};

std::size_t slot_of(void *at) { return (reinterpret_cast<std::uintptr_t>(at) >> 4) * 0x9E3779B97F4A7C15u >> 44; }

// Notes an allocated block, so that leaks are found. Blocks that pthread_create allocates are left out, because the C
// library keeps them after the thread has ended and uses them for a later thread.
void *take(void *at) {
  if (at == nullptr || !tracking.load(std::memory_order_relaxed) || unarmed > 0 || makes_thread) return at;
  void *stack[kDepth];
  int depth = 0;
  if (shown != nullptr) {
    ++unarmed;
    depth = backtrace(stack, kDepth);
    --unarmed;
  }
  const TableLock lock;
  std::size_t slot = slot_of(at);
  while (slots[slot] != nullptr && slots[slot] != kGone) slot = (slot + 1) % kSlots;
  slots[slot] = at;
  ++taken;
  if (shown != nullptr) {
    shown[slot].depth = depth;
    for (int i = 0; i < depth; ++i) shown[slot].stack[i] = stack[i];
  }
  return at;
}

void give_back(void *at) {
  if (at == nullptr || !tracking.load(std::memory_order_relaxed)) return;
  const TableLock lock;
  std::size_t slot = slot_of(at);
  for (; slots[slot] != nullptr; slot = (slot + 1) % kSlots)
    if (slots[slot] == at) {
      slots[slot] = kGone;
      --taken;
      return;
    }
}

template <typename Function>
Function *next(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

// The errno of a failing file call: `one` if the number of calls so far is even, else `other`.
int error_of(int one, int other) { return calls.load(std::memory_order_relaxed) % 2 == 0 ? one : other; }

bool file_fails(int one = EIO, int other = EIO) {
  if (!fails(Kind::file)) return false;
  errno = error_of(one, other);
  return true;
}

}  // namespace

void arm(const Fault &fault, std::uint64_t *sites) {
  present = fault;
  stack_hashes = sites;
  calls = 0;
  any_fired = false;
  armed = true;
}
void disarm() { armed = false; }
void spare_onednn(bool all) { all_of_onednn = all; }
std::uint64_t counted() { return calls; }
bool fired() { return any_fired; }

Disarming::Disarming() { ++unarmed; }
Disarming::~Disarming() { --unarmed; }

void begin_tracking() { tracking = true; }
std::size_t blocks_left() { return taken; }
std::size_t bytes_of_onednn() { return spent_by_onednn; }

void show_blocks_left() {
  if (shown == nullptr) return;
  for (std::size_t slot = 0, printed = 0; slot < kSlots && printed < 8; ++slot)
    if (slots[slot] != nullptr && slots[slot] != kGone) {
      dprintf(2, "-- not given back (%zu):\n", ++printed);
      backtrace_symbols_fd(shown[slot].stack, shown[slot].depth, 2);
    }
}

void show_stacks() {
  showing = true;
  shown = static_cast<AllocationRecord *>(__libc_calloc(kSlots, sizeof(AllocationRecord)));
}

}  // namespace protrain::test

using protrain::test::all_of_onednn;
using protrain::test::fails;
using protrain::test::file_fails;
using protrain::test::give_back;
using protrain::test::Kind;
using protrain::test::makes_thread;
using protrain::test::next;
using protrain::test::spent_by_onednn;
using protrain::test::take;

// ---- Memory ---------------------------------------------------------------------------------------------------------

namespace {
bool memory_fails() {
  if (!fails(Kind::memory)) return false;
  errno = ENOMEM;
  return true;
}

// The addresses of a library. A call comes from the library if its return address is one of them.
//   Some calls of oneDNN and libgomp must always succeed. oneDNN 2.6 writes to the result of posix_memalign or mmap
// without a check, and libgomp ends the process if malloc fails. Therefore protrain checks beforehand that there is
// enough memory for them (src/backend/cpu/gemm.cpp and device.cpp).
struct Range {
  std::uintptr_t begin = 0, end = 0;
};

// Returns the range of addresses of the loaded library whose file name contains `name`.
Range range_of(const char *name) {
  struct Search {
    std::string_view name;
    Range found;
  } search{.name = name};
  dl_iterate_phdr(
      [](dl_phdr_info *library, std::size_t, void *out) {
        auto &wanted = *static_cast<Search *>(out);
        if (std::string_view(library->dlpi_name).find(wanted.name) == std::string_view::npos) return 0;
        wanted.found.begin = ~std::uintptr_t{0};
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const auto &part = library->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          wanted.found.begin = std::min<std::uintptr_t>(wanted.found.begin, library->dlpi_addr + part.p_vaddr);
          wanted.found.end =
              std::max<std::uintptr_t>(wanted.found.end, library->dlpi_addr + part.p_vaddr + part.p_memsz);
        }
        return 1;
      },
      &search);
  return search.found;
}

bool lies_in(const Range &range, const void *caller) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  return at >= range.begin && at < range.end;
}

bool is_onednn(const void *caller) {
  static const Range range = range_of("libdnnl");
  return lies_in(range, caller);
}

bool is_libgomp(const void *caller) {
  static const Range range = range_of("libgomp");
  return lies_in(range, caller);
}
}  // namespace

STANDS_IN void *malloc(size_t bytes) {
  const bool spared = is_libgomp(__builtin_return_address(0));
  return !spared && memory_fails() ? nullptr : take(__libc_malloc(bytes));
}

// After spare_onednn(true), no fault hits `new` in oneDNN's own code. A fault can still hit an allocation that the C++
// library makes for oneDNN, because there the caller is the C++ library.
__attribute__((visibility("default"))) void *operator new(size_t bytes) {
  const bool spared = all_of_onednn && is_onednn(__builtin_return_address(0));
  if (void *at = !spared && memory_fails() ? nullptr : take(__libc_malloc(bytes)); at != nullptr) return at;
  throw std::bad_alloc();
}
__attribute__((visibility("default"))) void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
  const bool spared = all_of_onednn && is_onednn(__builtin_return_address(0));
  return !spared && memory_fails() ? nullptr : take(__libc_malloc(bytes));
}

STANDS_IN void *calloc(size_t n, size_t bytes) { return memory_fails() ? nullptr : take(__libc_calloc(n, bytes)); }
STANDS_IN void *realloc(void *at, size_t bytes) {
  if (memory_fails()) return nullptr;
  give_back(at);  // before realloc frees the block, because another thread may then get the same address
  return take(__libc_realloc(at, bytes));
}
STANDS_IN void *memalign(size_t alignment, size_t bytes) {
  return memory_fails() ? nullptr : take(__libc_memalign(alignment, bytes));
}
STANDS_IN void *aligned_alloc(size_t alignment, size_t bytes) {
  return memory_fails() ? nullptr : take(__libc_memalign(alignment, bytes));
}
STANDS_IN int posix_memalign(void **out, size_t alignment, size_t bytes) {
  const bool theirs = is_onednn(__builtin_return_address(0));
  if (theirs) spent_by_onednn += bytes;
  if (!theirs && memory_fails()) return ENOMEM;
  *out = take(__libc_memalign(alignment, bytes));
  return *out == nullptr ? ENOMEM : 0;
}
STANDS_IN void free(void *at) {
  give_back(at);
  __libc_free(at);
}
STANDS_IN void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  static const auto real = next<decltype(::mmap)>("mmap");
  if (!is_onednn(__builtin_return_address(0)) && memory_fails()) return MAP_FAILED;
  return real(at, bytes, protection, flags, file, offset);
}

// ---- Threads --------------------------------------------------------------------------------------------------------

STANDS_IN int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                             void *argument) {
  static const auto real = next<decltype(::pthread_create)>("pthread_create");
  if (fails(Kind::thread)) return EAGAIN;
  makes_thread = true;
  const int error = real(thread, attributes, start, argument);
  makes_thread = false;
  return error;
}

// ---- Files ----------------------------------------------------------------------------------------------------------

namespace {
mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}
}  // namespace

STANDS_IN int open(const char *path, int flags, ...) {
  static const auto real = next<decltype(::open)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return file_fails(EMFILE, EIO) ? -1 : real(path, flags, mode);
}
STANDS_IN int openat(int directory, const char *path, int flags, ...) {
  static const auto real = next<decltype(::openat)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return file_fails(EMFILE, EIO) ? -1 : real(directory, path, flags, mode);
}
STANDS_IN int close(int file) {
  static const auto real = next<decltype(::close)>("close");
  const bool failing = file_fails();
  const int error = errno;
  const int result = real(file);  // closes the descriptor even if this call reports failure
  if (failing) errno = error;
  return failing ? -1 : result;
}

// Defines the replacement of a file function that reports failure by returning `value` and setting errno. `errors`
// lists one or two values for errno, in parentheses; () means EIO.
#define FAILS_WITH(value, errors, type, name, parameters, arguments) \
  STANDS_IN type name parameters {                                   \
    static const auto real = next<decltype(::name)>(#name);          \
    return file_fails errors ? value : real arguments;               \
  }

using StatFs = struct statfs;
using Stat = struct stat;
FAILS_WITH(-1, (EIO), ssize_t, read, (int file, void *to, size_t n), (file, to, n))
FAILS_WITH(-1, (EIO), ssize_t, pread, (int file, void *to, size_t n, off_t at), (file, to, n, at))
FAILS_WITH(-1, (ENOSPC, EIO), ssize_t, write, (int file, const void *from, size_t n), (file, from, n))
FAILS_WITH(-1, (ENOSPC, EIO), ssize_t, pwrite, (int file, const void *from, size_t n, off_t at), (file, from, n, at))
FAILS_WITH(-1, (EIO, ENOSPC), int, fsync, (int file), (file))
FAILS_WITH(-1, (EIO, ENOSPC), int, rename, (const char *from, const char *to), (from, to))
FAILS_WITH(-1, (EIO, EINVAL), int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
           (a, from, b, to, flags))
FAILS_WITH(-1, (EIO, EACCES), int, unlink, (const char *path), (path))
FAILS_WITH(-1, (EIO, EACCES), int, unlinkat, (int directory, const char *path, int flags), (directory, path, flags))
FAILS_WITH(-1, (EIO, EACCES), int, rmdir, (const char *path), (path))
FAILS_WITH(-1, (EIO, ENOSPC), int, mkdir, (const char *path, mode_t mode), (path, mode))
FAILS_WITH(-1, (EIO, EACCES), int, stat, (const char *path, Stat *out), (path, out))
FAILS_WITH(-1, (EIO), int, fstat, (int file, Stat *out), (file, out))
FAILS_WITH(-1, (EIO, EACCES), int, lstat, (const char *path, Stat *out), (path, out))
FAILS_WITH(-1, (EIO, EACCES), int, fstatat, (int directory, const char *path, Stat *out, int flags),
           (directory, path, out, flags))
FAILS_WITH(-1, (EIO), int, statfs, (const char *path, StatFs *out), (path, out))
FAILS_WITH(-1, (EIO), int, fstatfs, (int file, StatFs *out), (file, out))
FAILS_WITH(-1, (ENOLCK, EIO), int, flock, (int file, int operation), (file, operation))
FAILS_WITH(-1, (ENOSPC, EMFILE), int, mkostemp, (char *pattern, int flags), (pattern, flags))
FAILS_WITH(-1, (EIO), int, ftruncate, (int file, off_t bytes), (file, bytes))
FAILS_WITH(-1, (EIO), ssize_t, getdents64, (int file, void *to, size_t bytes), (file, to, bytes))
FAILS_WITH(nullptr, (EIO, EACCES), DIR *, opendir, (const char *path), (path))
FAILS_WITH(nullptr, (EIO, EMFILE), DIR *, fdopendir, (int file), (file))
FAILS_WITH(nullptr, (EIO), struct dirent *, readdir, (DIR * directory), (directory))
FAILS_WITH(nullptr, (EIO, EACCES), char *, realpath, (const char *path, char *out), (path, out))
FAILS_WITH(nullptr, (EMFILE, EIO), FILE *, fopen, (const char *path, const char *mode), (path, mode))
FAILS_WITH(nullptr, (EMFILE, EIO), FILE *, fopen64, (const char *path, const char *mode), (path, mode))

STANDS_IN int posix_fallocate(int file, off_t begin, off_t bytes) {
  static const auto real = next<decltype(::posix_fallocate)>("posix_fallocate");
  return file_fails(ENOSPC, EIO) ? errno : real(file, begin, bytes);
}
STANDS_IN int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
  static const auto real = next<decltype(::io_uring_queue_init)>("io_uring_queue_init");
  return file_fails(ENOMEM, EMFILE) ? -errno : real(entries, ring, flags);
}
STANDS_IN int io_uring_submit(struct io_uring *ring) {
  static const auto real = next<decltype(::io_uring_submit)>("io_uring_submit");
  return file_fails(EIO, EAGAIN) ? -errno : real(ring);
}
