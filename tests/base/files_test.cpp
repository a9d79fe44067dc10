// Files. Some must not be opened. A read must give all bytes. A write must replace a file as a whole or not at all.
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.h"

namespace {

std::atomic<int> syncs = 0;  // of this program

}  // namespace

extern "C" int fsync(int file) {
  ++syncs;
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace protrain::files_test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = testing::TempDir() + "/files-XXXXXX";
    directory_ = fs::canonical(mkdtemp(pattern.data())).string();
  }
  ~Files() override { fs::remove_all(directory_); }

  std::string put(const std::string &name, const std::string &text) {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  static std::string get(const std::string &path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }
  template <typename Body>
  static Error error_of(const Body &body) {
    try {
      body();
    } catch (const Error &error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return Error(Code::ok, "", "");
  }

  std::string directory_;
};

TEST_F(Files, ReadsFromAnOffset) {
  const File file = File::open(put("a", "0123456789"));
  std::array<std::byte, 4> out{};
  file.read(3, out);
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(std::string(reinterpret_cast<const char *>(out.data()), 4), "3456");
}

TEST_F(Files, ReadBeyondTheEndSaysWhereTheFileEnds) {
  const File file = File::open(put("a", "0123456789"));
  std::array<std::byte, 4> out{};
  const Error error = error_of([&] { file.read(8, out); });
  EXPECT_EQ(error.code, Code::io);
  EXPECT_NE(error.text.find("byte 10"), std::string::npos) << error.text;
}

TEST_F(Files, FileThatShrinksIsAnErrorNotASignal) {
  const std::string path = put("a", std::string(10000, 'x'));
  const File file = File::open(path);
  fs::resize_file(path, 100);
  std::vector<std::byte> out(10000);
  EXPECT_EQ(error_of([&] { file.read(0, out); }).code, Code::io);
}

TEST_F(Files, OpenRefusesWhatIsNoRegularFileWithoutBlocking) {
  ASSERT_EQ(::mkfifo((directory_ + "/fifo").c_str(), 0600), 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string socket_path = directory_ + "/socket";
  ASSERT_LT(socket_path.size(), sizeof address.sun_path);
  socket_path.copy(address.sun_path, socket_path.size());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  for (const std::string &path : {directory_ + "/fifo", socket_path, std::string("/dev/zero"),
                                  std::string("/proc/self/mem"), std::string("/proc/self/environ")}) {
    const Error error = error_of([&] { File::open(path); });
    EXPECT_EQ(error.code, Code::path) << path;
    EXPECT_NE(error.text.find("not a regular file"), std::string::npos) << path;
    EXPECT_EQ(error.subject, path);
  }
  ::close(listener);
}

TEST_F(Files, OpenReportsTheSystemsReason) {
  const Error missing = error_of([&] { File::open(directory_ + "/none"); });
  EXPECT_EQ(missing.code, Code::io);
  EXPECT_EQ(missing.text, "cannot open it: No such file or directory");
  const Error directory = error_of([&] { File::open(directory_); });
  EXPECT_EQ(directory.code, Code::io);
  EXPECT_NE(directory.text.find("Is a directory"), std::string::npos) << directory.text;
}

TEST_F(Files, EmptyPathIsShownInQuotes) {
  for (const Error &error : {error_of([] { File::open(""); }), error_of([] { FileWriter writer(""); }),
                             error_of([] { create_directory(""); })}) {
    EXPECT_EQ(error.code, Code::io);
    EXPECT_EQ(error.subject, "''") << error.text;
    EXPECT_NE(error.text.find("No such file"), std::string::npos) << error.text;
  }
}

TEST_F(Files, OpenBeneathFollowsNoLinkOnTheWay) {
  fs::create_directory(directory_ + "/inside");
  put("inside/a", "abc");
  put("secret", "s");
  fs::create_symlink("a", directory_ + "/inside/link");
  fs::create_symlink("inside", directory_ + "/door");
  EXPECT_EQ(File::open_beneath(directory_, "inside/a").size(), 3u);
  EXPECT_EQ(error_of([&] { File::open_beneath(directory_, "inside/link"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { File::open_beneath(directory_, "door/a"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { File::open_beneath(directory_ + "/inside", "../secret"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { File::open_beneath(directory_, "inside"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { File::open_beneath(directory_, "inside/b"); }).code, Code::io);
}

TEST_F(Files, CommitPutsTheWholeFileInPlace) {
  const std::string path = put("a", "old");
  FileWriter writer(path);
  writer.write("new");
  writer.pad_to(8);
  writer.write("!");
  EXPECT_EQ(writer.position(), 9u);
  EXPECT_EQ(get(path), "old");
  writer.commit();
  EXPECT_EQ(get(path), std::string("new\0\0\0\0\0!", 9));
  EXPECT_EQ(entries(), 1u);
}

// Ranks that save together wait for each other now and then. If a rank synced a whole large file at once, the others
// would wait too long.
TEST_F(Files, WriterSyncsEvery256MiB) {
  FileWriter writer(directory_ + "/a");
  const std::vector<std::byte> part(16 << 20);
  const int before = syncs;
  for (int i = 0; i < 15; ++i) writer.write(part);
  EXPECT_EQ(syncs - before, 0);
  writer.write(part);
  EXPECT_EQ(syncs - before, 1);
}

TEST_F(Files, AbandonedWriterLeavesNothing) {
  const std::string path = put("a", "old");
  { FileWriter(path).write("half"); }
  EXPECT_EQ(get(path), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, WriterRemovesWhatAKilledOneOfTheSamePathLeft) {
  const std::string path = directory_ + "/a";
  const auto leave_half = [](const std::string &target) {
    const pid_t child = fork();
    if (child == 0) {
      FileWriter writer(target);
      writer.write("half");
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  };
  leave_half(path);
  leave_half(path);
  leave_half(directory_ + "/b");
  EXPECT_EQ(entries(), 2u);  // the second writer removed the first one's file
  FileWriter writer(path);
  writer.write("whole");
  writer.commit();
  EXPECT_EQ(get(path), "whole");
  EXPECT_EQ(entries(), 2u) << "what was to be another file stays";
}

TEST_F(Files, WriterLeavesAloneWhatAnotherIsWriting) {
  const std::string path = directory_ + "/a";
  FileWriter first(path);
  first.write("first");
  {
    FileWriter second(path);
    second.write("second");
    second.commit();
  }
  EXPECT_EQ(get(path), "second");
  first.commit();
  EXPECT_EQ(get(path), "first");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, WritersOfOnePathDoNotDisturbEachOther) {
  const auto write = [this](char letter) {
    for (int i = 0; i < 300; ++i) {
      FileWriter writer(directory_ + "/a");
      writer.write(std::string(100, letter));
      writer.commit();
    }
  };
  std::thread other([&] { EXPECT_NO_THROW(write('x')); });
  EXPECT_NO_THROW(write('y'));
  other.join();
  const std::string written = get(directory_ + "/a");
  EXPECT_TRUE(written == std::string(100, 'x') || written == std::string(100, 'y'));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, WriterRefusesWhatIsNoRegularFile) {
  EXPECT_EQ(error_of([&] { FileWriter writer(directory_); }).code, Code::path);
  EXPECT_EQ(error_of([] { FileWriter writer("/dev/null"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { FileWriter writer(directory_ + "/none/a"); }).code, Code::io);
}

// A limit on the size of files stands in for a full disk. A write beyond the limit also sends SIGXFSZ, which would end
// this process if the library did not withhold it.
TEST_F(Files, FullDiskIsItsOwnCodeAndKeepsTheOldFile) {
  const std::string path = put("a", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const Error error = error_of([&] {
    FileWriter writer(path);
    writer.write(std::string(5000, 'x'));
  });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error.code, Code::nospc) << error.text;
  EXPECT_EQ(get(path), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, DirectoriesAreListedByNameAndKind) {
  put("b", "");
  fs::create_directory(directory_ + "/a");
  fs::create_symlink("b", directory_ + "/c");
  const auto entries = list_directory(directory_);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name + entries[1].name + entries[2].name, "abc");
  EXPECT_EQ(entries[0].kind, DirectoryEntry::Kind::directory);
  EXPECT_EQ(entries[1].kind, DirectoryEntry::Kind::file);
  EXPECT_EQ(entries[2].kind, DirectoryEntry::Kind::other);
  EXPECT_EQ(error_of([&] { list_directory(directory_ + "/b"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { list_directory(directory_ + "/none"); }).code, Code::io);
}

TEST_F(Files, OnlyTheLastComponentOfADirectoryIsMade) {
  EXPECT_TRUE(create_directory(directory_ + "/a"));
  EXPECT_FALSE(create_directory(directory_ + "/a"));
  EXPECT_EQ(error_of([&] { create_directory(directory_ + "/b/c"); }).code, Code::io);
  EXPECT_EQ(error_of([&] { create_directory(put("file", "")); }).code, Code::path);
}

TEST_F(Files, OnlyADirectoryHasFreeSpace) {
  EXPECT_GT(free_space(directory_), 0u);
  EXPECT_EQ(error_of([&] { free_space(directory_ + "/none"); }).code, Code::path);
  EXPECT_EQ(error_of([&] { free_space(put("file", "")); }).code, Code::path);
  EXPECT_EQ(error_of([&] { free_space(put("file", "") + "/below"); }).code, Code::path);
}

TEST_F(Files, DirectoryTakesOnlyANameThatIsFree) {
  fs::create_directory(directory_ + "/a");
  fs::create_directory(directory_ + "/b");
  EXPECT_EQ(error_of([&] { rename_directory(directory_ + "/a", directory_ + "/b"); }).code, Code::io);
  rename_directory(directory_ + "/a", directory_ + "/c");
  EXPECT_TRUE(fs::is_directory(directory_ + "/c") && !fs::exists(directory_ + "/a"));
}

TEST_F(Files, NamesAreSwappedInOneAct) {
  fs::create_directory(directory_ + "/a");
  fs::create_directory(directory_ + "/b");
  put("a/x", "");
  if (!exchange_names(directory_ + "/a", directory_ + "/b")) GTEST_SKIP() << "not on this file system";
  EXPECT_TRUE(fs::exists(directory_ + "/b/x") && !fs::exists(directory_ + "/a/x"));
  EXPECT_EQ(error_of([&] { exchange_names(directory_ + "/a", directory_ + "/none"); }).code, Code::io);
}

TEST_F(Files, DirectoryIsRemovedWithItsFilesAndNothingElse) {
  fs::create_directories(directory_ + "/a/below");
  put("kept", "text");
  put("a/x", "");
  fs::create_symlink(directory_ + "/kept", directory_ + "/a/link");
  EXPECT_FALSE(remove_directory(directory_ + "/a"));  // it holds a directory
  EXPECT_FALSE(fs::exists(directory_ + "/a/x"));
  fs::remove(directory_ + "/a/below");
  EXPECT_TRUE(remove_directory(directory_ + "/a"));
  EXPECT_EQ(get(directory_ + "/kept"), "text");
  EXPECT_FALSE(remove_directory(directory_ + "/kept"));
}

TEST_F(Files, DirectoryIsLockedByOneAtATime) {
  {
    const DirectoryLock lock(directory_);
    if (!lock.held()) GTEST_SKIP() << "no locks on this file system";
    EXPECT_EQ(error_of([&] { const DirectoryLock second(directory_); }).code, Code::busy);
  }
  EXPECT_TRUE(DirectoryLock(directory_).held());
}

TEST_F(Files, PathsAreTakenApartAsText) {
  EXPECT_EQ(directory_of("a/b/c"), "a/b");
  EXPECT_EQ(directory_of("c"), ".");
  EXPECT_EQ(directory_of("/c"), "/");
  EXPECT_EQ(base_name("a/b/c"), "c");
  EXPECT_EQ(base_name("c"), "c");
}

TEST_F(Files, IdentityIsOfTheFileNotOfItsName) {
  const std::string path = put("a", "x");
  fs::create_symlink("a", directory_ + "/link");
  fs::create_symlink("nowhere", directory_ + "/dangling");
  EXPECT_EQ(identity_of(directory_ + "/link"), identity_of(path));
  EXPECT_EQ(real_path(directory_ + "/link"), path);
  EXPECT_EQ(real_path(directory_ + "/dangling"), std::nullopt);
}

TEST_F(Files, LieInAFileSystemThatIsToldByItsDeviceItsKindAndTheMagnitudeOfItsSize) {
  const auto parts = [](const std::string &path) {
    std::istringstream text(file_system_of(path).value());
    std::array<std::uint64_t, 3> numbers{};
    for (std::uint64_t &number : numbers) text >> number;
    EXPECT_TRUE(!text.fail() && text.eof()) << text.str();
    return numbers;
  };
  const auto [device, type, magnitude] = parts(directory_);
  EXPECT_EQ(device, identity_of(directory_)->device);
  EXPECT_GE(magnitude, static_cast<std::uint64_t>(std::bit_width(free_space(directory_))));
  EXPECT_LE(magnitude, 64u);
  EXPECT_EQ(file_system_of(put("a", "x")), file_system_of(directory_));
  EXPECT_NE(parts("/proc")[0], device);
  EXPECT_NE(parts("/proc")[1], type);
  EXPECT_EQ(file_system_of(directory_ + "/none"), std::nullopt);
}

}  // namespace
}  // namespace protrain::files_test
