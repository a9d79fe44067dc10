// Reads and writes files. System calls go through the sys_ functions below, which set the flags that every call needs.
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/signals.h"

namespace protrain {

namespace {

int sys_open(int directory, const char *path, int flags, mode_t mode = 0) {
  return ::openat(directory, path, flags | O_CLOEXEC, mode);
}
int sys_close(int descriptor) { return ::close(descriptor); }
int sys_stat_file_system(const char *path, struct statfs *out) { return ::statfs(path, out); }
int sys_stat(const char *path, struct stat *out) { return ::stat(path, out); }
int sys_stat(int descriptor, struct stat *out) { return ::fstat(descriptor, out); }
int sys_stat_at(int directory, const char *name, struct stat *out) {
  return ::fstatat(directory, name, out, AT_SYMLINK_NOFOLLOW);
}
int sys_statfs(int descriptor, struct statfs *out) { return ::fstatfs(descriptor, out); }
ssize_t sys_pread(int descriptor, void *out, std::size_t bytes, off_t offset) {
  return ::pread(descriptor, out, bytes, offset);
}
ssize_t sys_write(int descriptor, const void *bytes, std::size_t count) {
  const WithheldSignal guard(SIGXFSZ);
  return ::write(descriptor, bytes, count);
}
int sys_sync(int descriptor) { return ::fsync(descriptor); }
int sys_rename(const char *from, const char *to) { return ::rename(from, to); }
int sys_exchange(const char *a, const char *b) { return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE); }
int sys_rename_to_free(const char *from, const char *to) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}
int sys_unlink(const char *path) { return ::unlink(path); }
int sys_unlink_at(int directory, const char *name) { return ::unlinkat(directory, name, 0); }
int sys_make_directory(const char *path) { return ::mkdir(path, 0777); }
int sys_remove_directory(const char *path) { return ::rmdir(path); }
DIR *sys_open_directory(int descriptor) { return ::fdopendir(descriptor); }
dirent *sys_read_directory(DIR *directory) { return ::readdir(directory); }
ssize_t sys_read_entries(int descriptor, void *out, std::size_t bytes) { return ::getdents64(descriptor, out, bytes); }
int sys_lock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB); }
char *sys_realpath(const char *path) { return ::realpath(path, nullptr); }

[[noreturn]] void refuse(const std::string &path, const char *what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const Code code = full ? Code::nospc : error == ENOMEM ? Code::nomem : Code::io;
  fail(code, path.empty() ? "''" : path, "cannot {}: {}", what, std::generic_category().message(error));
}

[[noreturn]] void refuse_kind(const std::string &path) {
  fail(Code::path, path, "not a regular file; give a file on disk, no pipe, device, socket or directory");
}

// Owns a file descriptor and closes it unless it is released.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() { reset(-1); }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }
  void reset(int value) {
    if (value_ >= 0) sys_close(value_);
    value_ = value;
  }

 private:
  int value_;
};

// Returns false for files of /proc and /sys. These claim to be regular files, but their stated size is not the size of
// their text, and reading them can have effects.
bool on_disk(int descriptor) {
  constexpr std::array<unsigned long, 2> kKernelText{0x9fa0, 0x62656572};  // procfs, sysfs
  struct statfs system {};
  if (sys_statfs(descriptor, &system) != 0) return true;
  return std::find(kKernelText.begin(), kKernelText.end(), static_cast<unsigned long>(system.f_type)) ==
         kKernelText.end();
}

// The flags for opening a file to read. O_NONBLOCK keeps open() from blocking if a FIFO has replaced the checked file.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

FileIdentity identity(const struct stat &found) {
  return {static_cast<std::uint64_t>(found.st_dev), static_cast<std::uint64_t>(found.st_ino)};
}

}  // namespace

File::File(int descriptor, const std::string &path) : descriptor_(descriptor) {
  Descriptor owner(descriptor);
  path_ = path;
  struct stat found {};
  if (sys_stat(descriptor, &found) != 0) refuse(path_, "look at it", errno);
  if (!S_ISREG(found.st_mode) || !on_disk(descriptor)) refuse_kind(path_);
  size_ = static_cast<std::uint64_t>(found.st_size);
  identity_ = protrain::identity(found);
  owner.release();
}

File::File(File &&other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(std::move(other.bytes_)),
      path_(std::move(other.path_)),
      size_(other.size_),
      identity_(other.identity_) {}

File &File::operator=(File &&other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(identity_, other.identity_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) sys_close(descriptor_);
}

File File::open(const std::string &path) {
  struct stat found {};
  if (sys_stat(path.c_str(), &found) != 0) refuse(path, "open it", errno);
  if (S_ISDIR(found.st_mode)) refuse(path, "open it", EISDIR);
  if (!S_ISREG(found.st_mode)) refuse_kind(path);  // checked before opening, because opening a device can have effects
  const int descriptor = sys_open(AT_FDCWD, path.c_str(), kReadFlags);
  if (descriptor < 0) refuse(path, "open it", errno);
  return File(descriptor, path);
}

File File::open_beneath(const std::string &root, const std::string &relative) {
  const std::string path = root + "/" + relative;
  Descriptor directory(sys_open(AT_FDCWD, root.c_str(), O_PATH | O_DIRECTORY));
  if (directory.get() < 0) refuse(path, "open its directory", errno);
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = std::min(relative.find('/', begin), relative.size());
    const std::string name = relative.substr(begin, end - begin);
    require(!name.empty() && name != "." && name != "..", Code::path, path, "not a plain path below its directory");
    struct stat found {};
    if (sys_stat_at(directory.get(), name.c_str(), &found) != 0) refuse(path, "open it", errno);
    if (S_ISLNK(found.st_mode)) fail(Code::path, path, "a symbolic link appeared on the way to it");
    const bool last = end == relative.size();
    if (last ? !S_ISREG(found.st_mode) : !S_ISDIR(found.st_mode)) refuse_kind(path);
    const int flags = last ? kReadFlags : O_PATH | O_DIRECTORY;
    const int next = sys_open(directory.get(), name.c_str(), flags | O_NOFOLLOW);
    if (next < 0 && errno == ELOOP) fail(Code::path, path, "a symbolic link appeared on the way to it");
    if (next < 0) refuse(path, "open it", errno);
    if (last) return File(next, path);
    directory.reset(next);
    begin = end + 1;
  }
}

File File::in_memory(std::string name, std::shared_ptr<const std::vector<std::byte>> bytes) {
  File file;
  file.path_ = std::move(name);
  file.size_ = bytes->size();
  file.bytes_ = std::move(bytes);
  return file;
}

std::int64_t File::modified() const {
  if (bytes_) return 0;
  struct stat found {};
  if (sys_stat(descriptor_, &found) != 0) refuse(path_, "look at it", errno);
  return found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec;
}

void File::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (bytes_) {
    require(offset <= size_ && out.size() <= size_ - offset, Code::io, path_, "ends at byte {}, {} bytes early", size_,
            out.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_->data() + offset, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t got = sys_pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path_, "read it", errno);
    require(got > 0, Code::io, path_, "ends at byte {}, {} bytes early; it shrank after it was opened", offset,
            out.size());
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

namespace {

constexpr std::string_view kUnfinished = ".partial";
constexpr std::uint64_t kSyncBytes = 256 << 20;  // what a FileWriter writes between two syncs, at most

std::string unfinished_stem(const std::string &path) { return "." + base_name(path) + "."; }

// Locks a new temporary file. Returns false if another writer was faster and has locked or removed it, which can happen
// because an unlocked file looks abandoned. On a file system without locks, only a removal is noticed.
bool claim(int descriptor) {
  struct stat found {};
  if (sys_lock(descriptor) != 0 && errno == EWOULDBLOCK) return false;
  return sys_stat(descriptor, &found) != 0 || found.st_nlink > 0;
}

std::vector<std::string> names_in(DIR *directory, const std::string &path) {
  std::vector<std::string> names;
  for (errno = 0; const dirent *found = sys_read_directory(directory); errno = 0)
    if (const std::string_view name = found->d_name; name != "." && name != "..") names.emplace_back(name);
  if (errno != 0) refuse(path, "list it", errno);
  return names;
}

using Directory = std::unique_ptr<DIR, int (*)(DIR *)>;

Directory open_directory(const std::string &path) {
  Descriptor descriptor(sys_open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY));
  require(descriptor.get() >= 0 || errno != ENOTDIR, Code::path, path, "not a directory");
  if (descriptor.get() < 0) refuse(path, "list it", errno);
  Directory directory(sys_open_directory(descriptor.get()), &::closedir);
  if (!directory) refuse(path, "list it", errno);
  descriptor.release();
  return directory;
}

// Removes the temporary files of earlier writers of the same path that were killed. The files stay if the directory
// cannot be listed.
void remove_abandoned(const std::string &path) {
  const std::string parent = directory_of(path), stem = unfinished_stem(path);
  std::vector<std::string> names;
  try {
    names = names_in(open_directory(parent).get(), parent);
  } catch (const Error &) {
  }
  for (const std::string &name : names) {
    if (!name.starts_with(stem) || !name.ends_with(kUnfinished)) continue;
    const std::string abandoned = parent + "/" + name;
    const Descriptor file(sys_open(AT_FDCWD, abandoned.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
    if (file.get() >= 0 && sys_lock(file.get()) == 0) sys_unlink(abandoned.c_str());
  }
}

}  // namespace

FileWriter::FileWriter(const std::string &path) : path_(path) {
  static std::atomic<unsigned> serial{0};
  constexpr int kMostTries = 100;
  if (path.empty()) refuse(path, "create it", ENOENT);
  struct stat found {};
  const bool there = sys_stat(path.c_str(), &found) == 0;
  if (!there && errno != ENOENT) refuse(path, "look at it", errno);
  if (there && !S_ISREG(found.st_mode)) refuse_kind(path);
  remove_abandoned(path);
  for (int tries = 0;; ++tries) {
    temporary_ =
        fmt::format("{}/{}{}-{}{}", directory_of(path), unfinished_stem(path), ::getpid(), serial++, kUnfinished);
    descriptor_ = sys_open(AT_FDCWD, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    // EEXIST means that a killed process with the same id left a file of this name.
    if (descriptor_ < 0 && errno != EEXIST) refuse(path_, "create it", errno);
    if (descriptor_ >= 0 && claim(descriptor_)) return;
    if (descriptor_ >= 0) sys_close(std::exchange(descriptor_, -1));
    if (tries == kMostTries) refuse(path_, "create it", EEXIST);
  }
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) sys_close(descriptor_);
  if (!temporary_.empty()) sys_unlink(temporary_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = sys_write(descriptor_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) refuse(path_, "write it", errno);
    require(done > 0, Code::io, path_, "cannot write it: the system wrote none of {} bytes", bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    position_ += static_cast<std::uint64_t>(done);
    if (position_ - synced_ >= kSyncBytes) sync();
  }
}

void FileWriter::sync() {
  if (sys_sync(descriptor_) != 0) refuse(path_, "sync it", errno);
  synced_ = position_;
}

void FileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void FileWriter::pad_to(std::uint64_t multiple) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  for (std::uint64_t missing = (multiple - position_ % multiple) % multiple; missing > 0;) {
    const std::uint64_t part = std::min<std::uint64_t>(missing, kZeros.size());
    write(std::span(kZeros).first(part));
    missing -= part;
  }
}

void FileWriter::commit() {
  sync();
  if (sys_rename(temporary_.c_str(), path_.c_str()) != 0) refuse(path_, "rename it into place", errno);
  temporary_.clear();
  sys_close(std::exchange(descriptor_, -1));  // unlocks only now: other writers remove an unlocked temporary file
  sync_directory(directory_of(path_));
}

std::vector<DirectoryEntry> list_directory(const std::string &path) {
  using Kind = DirectoryEntry::Kind;
  const Directory directory = open_directory(path);
  std::vector<DirectoryEntry> entries;
  for (std::string &name : names_in(directory.get(), path)) {
    struct stat about {};
    const bool there = sys_stat_at(::dirfd(directory.get()), name.c_str(), &about) == 0;
    if (!there && errno == ENOENT) continue;  // removed since it was listed
    if (!there) refuse(path + "/" + name, "look at it", errno);
    const Kind kind = S_ISREG(about.st_mode) ? Kind::file : S_ISDIR(about.st_mode) ? Kind::directory : Kind::other;
    entries.push_back({std::move(name), kind});
  }
  std::ranges::sort(entries, {}, &DirectoryEntry::name);
  return entries;
}

bool create_directory(const std::string &path) {
  const std::string parent = directory_of(path);
  struct stat found {};
  const bool made = sys_make_directory(path.c_str()) == 0;
  if (!made && errno != EEXIST) refuse(path, "create the directory", errno);
  if (!made && sys_stat(path.c_str(), &found) != 0) refuse(path, "look at it", errno);
  require(made || S_ISDIR(found.st_mode), Code::path, path, "not a directory");
  if (!made) return false;
  try {
    sync_directory(parent);
  } catch (...) {
    sys_remove_directory(path.c_str());
    throw;
  }
  return true;
}

void sync_directory(const std::string &path) {
  Descriptor directory(sys_open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY));
  if (directory.get() < 0 || sys_sync(directory.get()) != 0) refuse(path, "sync the directory", errno);
}

void rename_directory(const std::string &from, const std::string &to) {
  if (sys_rename_to_free(from.c_str(), to.c_str()) == 0) return;
  // EINVAL and ENOSYS mean that this file system has no rename that fails if the name is taken. Then rename() is used,
  // which replaces a directory only if it is empty.
  if (errno != EINVAL && errno != ENOSYS) refuse(to, "rename a directory to it", errno);
  if (sys_rename(from.c_str(), to.c_str()) != 0) refuse(to, "rename a directory to it", errno);
}

bool exchange_names(const std::string &a, const std::string &b) {
  if (sys_exchange(a.c_str(), b.c_str()) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  refuse(b, "swap a directory with it", errno);
}

bool remove_directory(const std::string &path) noexcept {
  const Descriptor directory(sys_open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  alignas(dirent64) std::array<char, 4096> entries;
  while (directory.get() >= 0) {
    const ssize_t bytes = sys_read_entries(directory.get(), entries.data(), entries.size());
    if (bytes <= 0) break;
    for (ssize_t at = 0; at < bytes;) {
      const auto *entry = reinterpret_cast<const dirent64 *>(entries.data() + at);
      sys_unlink_at(directory.get(), entry->d_name);  // fails on directories
      at += entry->d_reclen;
    }
  }
  return sys_remove_directory(path.c_str()) == 0;
}

DirectoryLock::DirectoryLock(const std::string &path)
    : descriptor_(sys_open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY)) {
  if (descriptor_ < 0) refuse(path, "open the directory", errno);
  if (sys_lock(descriptor_) == 0) return;
  const int error = errno;
  sys_close(std::exchange(descriptor_, -1));
  if (error == EWOULDBLOCK) fail(Code::busy, path, "another session is writing into it; try again when it is done");
  if (error != EBADF && error != EINVAL && error != ENOLCK && error != EOPNOTSUPP)
    refuse(path, "lock the directory", error);
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) sys_close(descriptor_);
}

std::string read_text(const std::string &path) {
  constexpr std::uint64_t kMost = 64ull << 20;
  const File file = File::open(path);
  require(file.size() <= kMost, Code::limit, path, "{} bytes are more than the {} that are read as a whole",
          file.size(), kMost);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::uint64_t free_space(const std::string &path) {
  struct statfs system {};
  struct stat found {};
  const bool there = sys_stat(path.c_str(), &found) == 0;
  if (!there && errno != ENOENT && errno != ENOTDIR) refuse(path, "look at it", errno);
  require(there && S_ISDIR(found.st_mode), Code::path, path, "not a directory");
  if (sys_stat_file_system(path.c_str(), &system) != 0) refuse(path, "read the free space of it", errno);
  return static_cast<std::uint64_t>(system.f_bavail) * static_cast<std::uint64_t>(system.f_bsize);
}

std::string directory_of(const std::string &path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_name(const std::string &path) { return path.substr(path.rfind('/') + 1); }

std::optional<std::string> real_path(const std::string &path) {
  const std::unique_ptr<char, decltype(&std::free)> found(sys_realpath(path.c_str()), &std::free);
  if (!found) return std::nullopt;
  return std::string(found.get());
}

std::optional<FileIdentity> identity_of(const std::string &path) {
  struct stat found {};
  if (sys_stat(path.c_str(), &found) == 0) return identity(found);
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  refuse(path, "look at it", errno);
}

std::optional<std::string> file_system_of(const std::string &path) {
  const std::optional<FileIdentity> file = identity_of(path);
  if (!file) return std::nullopt;
  struct statfs system {};
  if (sys_stat_file_system(path.c_str(), &system) != 0) refuse(path, "look at the file system of it", errno);
  const auto bytes = static_cast<std::uint64_t>(system.f_blocks) * static_cast<std::uint64_t>(system.f_bsize);
  return fmt::format("{} {} {}", file->device, static_cast<std::uint64_t>(system.f_type), std::bit_width(bytes));
}

}  // namespace protrain
