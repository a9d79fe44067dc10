#include "base/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <sstream>

namespace protrain::cgroup {

namespace {
// Calls visit(folder) for this process's group in the hierarchy of `controller` ("": v2) and for each one above it.
// Inside a container the path may name a folder that only the host sees: then just the mount's own root exists.
void walk(const std::string &root, const std::string &controller,
          const std::function<void(const std::string &)> &visit) {
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/path" or "0::/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (controller.empty() ? controllers != ",,"
                           : controllers.find(fmt::format(",{},", controller)) == std::string::npos)
      continue;
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string mount = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
    while (true) {
      visit(mount + path);
      if (controller.empty()) visit(mount + "/unified" + path);
      if (path.empty()) return;
      path.erase(path.rfind('/'));
    }
  }
}

std::string first_word(const std::string &path, std::string *second = nullptr) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  if (second) file >> *second;
  return word;
}

std::optional<std::uint64_t> parse(const std::string &text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;  // "max", "-1", no file
  return value;
}

struct MemoryFiles {
  const char *limit, *usage, *cache;
};

std::uint64_t free_in(const std::string &folder, const MemoryFiles &files) {
  const auto limit = number_in(folder + files.limit), usage = number_in(folder + files.usage);
  if (!limit || !usage) return kUnlimited;
  const std::uint64_t cache = number_in(folder + "/memory.stat", files.cache).value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

int processors(std::optional<std::uint64_t> quota, std::optional<std::uint64_t> period) {
  if (!quota || !period || *period == 0 || *quota == 0) return 0;
  return static_cast<int>(std::min<std::uint64_t>((*quota - 1) / *period + 1, 1U << 20));
}
}  // namespace

std::optional<std::uint64_t> number_in(const std::string &path, const std::string &key) {
  if (key.empty()) return parse(first_word(path));
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, number;
    if (words >> name >> number && name == key) return parse(number);
  }
  return std::nullopt;
}

std::uint64_t free_memory(const std::string &root) {
  std::uint64_t least = kUnlimited;
  walk(root, "", [&](const std::string &folder) {
    for (const char *limit : {"/memory.max", "/memory.high"})
      least = std::min(least, free_in(folder, {limit, "/memory.current", "inactive_file"}));
  });
  walk(root, "memory", [&](const std::string &folder) {
    least =
        std::min(least, free_in(folder, {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"}));
  });
  return least;
}

int processor_quota(const std::string &root) {
  int least = 0;
  auto take = [&](int count) {
    if (count > 0) least = least == 0 ? count : std::min(least, count);
  };
  walk(root, "", [&](const std::string &folder) {  // cpu.max: "150000 100000" or "max 100000"
    std::string period;
    const std::string quota = first_word(folder + "/cpu.max", &period);
    take(processors(parse(quota), parse(period)));
  });
  walk(root, "cpu", [&](const std::string &folder) {
    take(processors(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us")));
  });
  return least;
}

}  // namespace protrain::cgroup
