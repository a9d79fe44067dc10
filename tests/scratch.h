// A temporary directory that is removed when the object is destroyed.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace protrain::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "protrain-test-XXXXXX").string();
    path_ = std::filesystem::canonical(mkdtemp(pattern.data())).string();
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() { std::filesystem::remove_all(path_); }

  const std::string &path() const { return path_; }
  std::string operator/(const std::string &name) const { return path_ + "/" + name; }
  std::string file(const std::string &name) const { return *this / name; }
  std::string file(const std::string &name, const std::string &text) const { return put(name, text); }
  std::string put(const std::string &name, const std::string &bytes) const {
    std::filesystem::remove(*this / name);  // faster: some file systems flush a truncated file
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string get(const std::string &name) const {
    std::ostringstream out;
    out << std::ifstream(*this / name, std::ios::binary).rdbuf();
    return out.str();
  }

 private:
  std::string path_;
};

}  // namespace protrain::test
