// Files: the one layer through which the library reads and writes the file system. Every failure is an Error that
// carries the system's text; nothing here blocks on a FIFO, follows a device or maps memory (a mapped file that shrinks
// kills the process).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace protrain {

// Which file a path led to, whatever its name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity &) const = default;
};

// An open regular file, or bytes in memory, read-only.
class File {
 public:
  // Follows links. Code::io where the system refuses (a directory among that), Code::path for what is no regular file.
  static File open(const std::string &path);
  // Opens `relative` under `root` and follows no link on the way below it, so that nothing that happens meanwhile can
  // lead outside. Code::path for links and for all but regular files; Code::io where the system refuses.
  static File open_beneath(const std::string &root, const std::string &relative);
  // Bytes that no file holds; `name` stands for their path in errors.
  static File in_memory(std::string name, std::shared_ptr<const std::vector<std::byte>> bytes);

  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  const std::string &path() const { return path_; }
  std::uint64_t size() const { return size_; }         // when it was opened
  FileIdentity identity() const { return identity_; }  // of bytes in memory: that of no file
  // Fills `out` from `offset`; Code::io where the file ends before.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  File(int descriptor, const std::string &path);  // closes it where it throws
  File() = default;

  int descriptor_ = -1;
  std::shared_ptr<const std::vector<std::byte>> bytes_;  // or the descriptor
  std::string path_;
  std::uint64_t size_ = 0;
  FileIdentity identity_;
};

// A file in the making: written under a temporary name in the same directory, and in place only once it is complete.
// The writer locks its temporary file while it lives. A file of that kind that nobody locks was left by a process that
// was killed: the next writer of the same path removes it. File systems without locks keep it.
class FileWriter {
 public:
  explicit FileWriter(const std::string &path);  // Code::path where `path` is something else than a regular file
  FileWriter(const FileWriter &) = delete;
  FileWriter &operator=(const FileWriter &) = delete;
  ~FileWriter();  // removes the temporary file unless committed

  std::uint64_t position() const { return position_; }
  void write(std::span<const std::byte> bytes);  // Code::nospc, Code::io
  void write(std::string_view text);
  void pad_to(std::uint64_t multiple);  // zeros, up to the next multiple
  // Syncs the file, renames it to `path`, syncs the directory. After an error the old file is still in place, unless
  // only the last of the three failed. No sync is tried twice: the system forgets what it could not write.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t position_ = 0;
};

// A small file as a whole: what people write by hand. Code::limit beyond 64 MiB.
std::string read_text(const std::string &path);

// What a directory holds.
struct DirectoryEntry {
  enum class Kind : std::uint8_t { file, directory, other };  // other: links too, wherever they lead
  std::string name;
  Kind kind = Kind::other;
};

// Sorted by name, without "." and "..". Code::path for what is no directory.
std::vector<DirectoryEntry> list_directory(const std::string &path);

// Makes the last component of `path` and syncs the directory above; false where there is a directory already. Where it
// throws it leaves none.
bool create_directory(const std::string &path);

void sync_directory(const std::string &path);

// Moves a directory to a name that must be free; nothing is synced.
void rename_directory(const std::string &from, const std::string &to);

// Swaps two names in one act; nothing is synced. False where the file system cannot, and then nothing has happened.
bool exchange_names(const std::string &a, const std::string &b);

// Removes a directory and the files in it, but no directory below and nothing behind a link. What cannot be removed
// stays, and then the answer is false. Takes no memory: it also cleans up where there is none.
bool remove_directory(const std::string &path) noexcept;

// Holds a directory against all others that ask for it, in this process or another; the system lets go of it when the
// process ends, however it ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string &path);  // Code::busy where another has it
  DirectoryLock(const DirectoryLock &) = delete;
  DirectoryLock &operator=(const DirectoryLock &) = delete;
  ~DirectoryLock();
  bool held() const { return descriptor_ >= 0; }  // false: the file system knows no such locks

 private:
  int descriptor_ = -1;
};

// Bytes that this process may still write to the file system of a directory. Code::path for what is no directory.
std::uint64_t free_space(const std::string &path);

// Path text only: no file is touched.
std::string directory_of(const std::string &path);  // "." where the path has none
std::string base_name(const std::string &path);

// Links resolved; nothing where the path leads nowhere (missing, dangling, a loop).
std::optional<std::string> real_path(const std::string &path);
// Nothing where nothing has that name; Code::io where the system does not say.
std::optional<FileIdentity> identity_of(const std::string &path);

}  // namespace protrain
