// A directory that goes with the test; on a real disk where there is one.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace protrain::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "protrain-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  std::string file(const std::string &name) const { return (path_ / name).string(); }
  std::string file(const std::string &name, const std::string &text) const {
    std::ofstream(path_ / name) << text;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace protrain::test
