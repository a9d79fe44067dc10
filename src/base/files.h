// Files: the layer through which the library reads and writes the file system. Only the spill file and the reader of
// /proc have system calls of their own. Every failure is an Error with the system's text. Nothing here blocks on a
// FIFO, opens a device or maps memory (a mapped file that shrinks kills the process).
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

// Identifies a file independently of its name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity &) const = default;
};

// An open regular file, or bytes in memory, read-only.
class File {
 public:
  // Opens a file, and follows links. Code::io if the system refuses or `path` is a directory, Code::path if it is
  // anything else than a regular file on disk.
  static File open(const std::string &path);
  // Opens `relative` under `root`. Follows no link below `root`, so a link that appears meanwhile cannot lead outside
  // `root`. Code::path for links and anything but a regular file, Code::io where the system refuses.
  static File open_beneath(const std::string &root, const std::string &relative);
  // Makes a File of bytes in memory. `name` stands for a path in errors.
  static File in_memory(std::string name, std::shared_ptr<const std::vector<std::byte>> bytes);

  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  const std::string &path() const { return path_; }
  std::uint64_t size() const { return size_; }         // when it was opened
  FileIdentity identity() const { return identity_; }  // {0, 0} for bytes in memory
  // Returns when the file was last changed, in nanoseconds since 1970; 0 for bytes in memory.
  std::int64_t modified() const;
  // Fills `out` with the bytes from `offset` on. Code::io if the file ends before `out` is full.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  File(int descriptor, const std::string &path);  // closes the descriptor if it throws
  File() = default;

  int descriptor_ = -1;
  std::shared_ptr<const std::vector<std::byte>> bytes_;  // the bytes of in_memory(), which has no descriptor
  std::string path_;
  std::uint64_t size_ = 0;
  FileIdentity identity_;
};

// Writes a file under a temporary name in the same directory and moves it into place once it is complete. A writer
// keeps its temporary file locked. So an unlocked temporary file is what a killed process has left. The next writer of
// the same path removes it, except on file systems without locks.
class FileWriter {
 public:
  explicit FileWriter(const std::string &path);  // Code::path where `path` exists and is not a regular file
  FileWriter(const FileWriter &) = delete;
  FileWriter &operator=(const FileWriter &) = delete;
  ~FileWriter();  // removes the temporary file unless committed

  std::uint64_t position() const { return position_; }
  // Appends the bytes to the file. Syncs after every 256 MiB, so that no call has to wait until the disk has taken a
  // whole large file. Code::nospc, Code::io.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void pad_to(std::uint64_t multiple);  // appends zeros up to the next multiple
  // Syncs the file, renames it to `path`, and syncs the directory. After an error the old file is still in place,
  // unless only the last of the three steps failed. A sync that failed is not tried again, because the system drops
  // data that it could not write.
  void commit();

 private:
  void sync();

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t position_ = 0;
  std::uint64_t synced_ = 0;  // the position at the last sync
};

// Reads a small text file as a whole, such as one written by hand. Code::limit above 64 MiB.
std::string read_text(const std::string &path);

// An entry of a directory.
struct DirectoryEntry {
  enum class Kind : std::uint8_t { file, directory, other };  // other: links too, wherever they lead
  std::string name;
  Kind kind = Kind::other;
};

// Returns the entries sorted by name, without "." and "..". Code::path where `path` is not a directory.
std::vector<DirectoryEntry> list_directory(const std::string &path);

// Creates the last component of `path` and syncs the directory above it. Returns false if the directory exists already.
// Leaves no directory behind when it throws.
bool create_directory(const std::string &path);

void sync_directory(const std::string &path);

// Renames a directory. The new name must be free. Syncs nothing.
void rename_directory(const std::string &from, const std::string &to);

// Swaps two names atomically and syncs nothing. Returns false, with nothing changed, if the file system cannot do it.
bool exchange_names(const std::string &a, const std::string &b);

// Removes a directory and the files in it. Removes no subdirectory, and follows no link. Returns false if something
// could not be removed. Allocates no memory, so it can clean up when memory is short.
bool remove_directory(const std::string &path) noexcept;

// Locks a directory against everyone else who asks for it, in this process or another. The system releases the lock
// when the process ends, however it ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string &path);  // Code::busy if someone else holds it
  DirectoryLock(const DirectoryLock &) = delete;
  DirectoryLock &operator=(const DirectoryLock &) = delete;
  ~DirectoryLock();
  bool held() const { return descriptor_ >= 0; }  // false: the file system has no such locks

 private:
  int descriptor_ = -1;
};

// Returns how many bytes this process may still write to the file system of the directory `path`. Code::path if `path`
// is not a directory.
std::uint64_t free_space(const std::string &path);

// Returns a text that tells the file system of `path` from others, or an empty optional if there is no such file. The
// system may give the number of a device that is gone to another one. So the text has this number, the kind of file
// system, and the magnitude of its size (how many binary digits it has). The exact size would not do: on ZFS and CephFS
// it changes with what others store there. Code::io if the system refuses to look at it.
std::optional<std::string> file_system_of(const std::string &path);

// The next two functions work on the text of a path and touch no file.
std::string directory_of(const std::string &path);  // "." where the path has none
std::string base_name(const std::string &path);

// Returns `path` with all links resolved. Returns an empty optional if the path leads nowhere, because a name is
// missing, a link dangles, or links form a loop.
std::optional<std::string> real_path(const std::string &path);
// Returns the identity of the file at `path`, or an empty optional if there is no such file. Code::io if the system
// refuses to look at the file.
std::optional<FileIdentity> identity_of(const std::string &path);

}  // namespace protrain
