// Text for people on stderr.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace tool {

// Writes to stderr. Text that cannot be written is lost, without an error: the results matter more. fmt::print would
// throw, even where no exception may pass, such as in a log callback.
template <typename... T>
void tell(fmt::format_string<T...> format, T &&...values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace tool
