// Replaces libFuzzer's main: calls the target once with each given file and each file in the given folders.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "fuzz/answer.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const fs::path &path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto &entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace

int main(int argc, char **argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i)
    for (const fs::path &path : files_of(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      const std::vector<char> read((std::istreambuf_iterator<char>(file)), {});
      const std::vector<char> bytes(read);  // a copy has no spare capacity, so sanitizers see a read beyond the end
      if (!file) protrain::fuzz::find(path.string() + " cannot be read");
      std::fprintf(stderr, "%s\n", path.c_str());  // the last line names the input if the program crashes
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size());
      ++inputs;
    }
  std::printf("%zu inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
