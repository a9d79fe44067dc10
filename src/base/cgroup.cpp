#include "base/cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "base/text.h"

namespace protrain::cgroup {

namespace {
// Calls visit(folder) for this process's control group and for every group above it. `controller` names a hierarchy of
// v1; "" means v2. Inside a container most of these folders may be missing, because they exist only on the host. The
// last folder is the root of the mount. Inside a container this root is the container's own group, so the last visit
// still finds the container's limits.
void walk(const std::string &root, const std::string &controller,
          const std::function<void(const std::string &)> &visit) {
  for (const std::string &line :
       split(text_of(root + "/proc/self/cgroup"), '\n')) {  // "4:cpu,cpuacct:/path" or "0::/path"
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

std::string text_of(const std::string &path) {
  struct Descriptor {
    int file;
    ~Descriptor() {
      if (file >= 0) ::close(file);
    }
  };
  const Descriptor open{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t got; open.file >= 0 && (got = ::read(open.file, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kBetween = " \t\n";
  std::vector<std::string> words;
  for (std::size_t begin = text.find_first_not_of(kBetween); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBetween, end);
  }
  return words;
}

std::optional<std::uint64_t> number_in(const std::string &path, const std::string &key) {
  const std::string text = text_of(path);
  for (const std::string &line : split(text, '\n')) {
    const std::vector<std::string> words = words_of(line);
    if (key.empty()) return parse(words.empty() ? "" : words[0]);
    if (words.size() > 1 && words[0] == key) return parse(words[1]);
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
    const std::vector<std::string> words = words_of(text_of(folder + "/cpu.max"));
    if (words.size() > 1) take(processors(parse(words[0]), parse(words[1])));
  });
  walk(root, "cpu", [&](const std::string &folder) {
    take(processors(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us")));
  });
  return least;
}

}  // namespace protrain::cgroup
