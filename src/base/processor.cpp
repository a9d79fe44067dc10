#include "base/processor.h"

#include <fmt/format.h>

#include <string_view>

#include "base/cgroup.h"
#include "base/text.h"

namespace protrain {

namespace {

std::string_view stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// Returns the value of the first line "key : value" of the text, or "".
std::string value_of(const std::vector<std::string> &lines, std::string_view key) {
  for (const std::string_view line : lines) {
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && stripped(line.substr(0, colon)) == key)
      return std::string(stripped(line.substr(colon + 1)));
  }
  return "";
}

}  // namespace

std::string processor_name(const std::string &root) {
  const std::vector<std::string> lines = split(cgroup::text_of(root + "/proc/cpuinfo"), '\n');
  if (std::string name = value_of(lines, "model name"); !name.empty()) return name;
  const std::string implementer = value_of(lines, "CPU implementer"), part = value_of(lines, "CPU part");
  if (implementer.empty() || part.empty()) return "cpu";
  return fmt::format("implementer {}, part {}, variant {}", implementer, part, value_of(lines, "CPU variant"));
}

}  // namespace protrain
