#include "state/folders.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"

namespace protrain::state {

namespace {

constexpr std::string_view kStem = "step-", kAside = ".old", kHidden = ".step-", kUnfinished = ".tmp";

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string folder_name(const Folder &folder) {
  return fmt::format("{}{:010}{}", kStem, folder.step, folder.aside ? kAside : "");
}

std::string temporary_name(std::uint64_t step, unsigned serial) {
  return fmt::format("{}{:010}-{}-{}{}", kHidden, step, ::getpid(), serial, kUnfinished);
}

std::optional<Folder> parse_folder(std::string_view name) {
  Folder folder{.step = 0, .aside = name.ends_with(kAside)};
  std::string_view digits = name;
  if (folder.aside) digits.remove_suffix(kAside.size());
  if (!digits.starts_with(kStem)) return std::nullopt;
  digits.remove_prefix(kStem.size());
  const auto step = all_digits(digits) ? parse_integer(digits) : std::nullopt;
  if (step) folder.step = static_cast<std::uint64_t>(*step);
  if (!step || folder_name(folder) != name) return std::nullopt;
  return folder;
}

bool is_temporary(std::string_view name) {
  if (!name.starts_with(kHidden) || !name.ends_with(kUnfinished)) return false;
  name.remove_prefix(kHidden.size());
  name.remove_suffix(kUnfinished.size());
  const auto numbers = split(name, '-');
  return numbers.size() == 3 && std::ranges::all_of(numbers, all_digits);
}

}  // namespace protrain::state
