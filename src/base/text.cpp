// Parses text without a locale, and escapes text from files.
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

namespace protrain {

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<Unit, 10> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"KB", 1000},
                                       {"KiB", 1ULL << 10},
                                       {"MB", 1000'000},
                                       {"MiB", 1ULL << 20},
                                       {"GB", 1000'000'000},
                                       {"GiB", 1ULL << 30},
                                       {"TB", 1000'000'000'000},
                                       {"TiB", 1ULL << 40}}};

template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number number{};
  const char *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // row[j]: distance of a's first i letters to b's first j
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Returns how many bytes the UTF-8 character at the front of `text` has, or 0 if it is invalid. Overlong forms and
// surrogates are invalid.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned char second = byte(1);
  const bool wrong = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                     (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return wrong ? 0 : length;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse_whole<std::int64_t>(text); }

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> number = parse_whole<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  std::string_view name = text.substr(digits);
  if (name.starts_with(' ') && name.size() > 1) name.remove_prefix(1);
  const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit &u) { return u.name == name; });
  if (unit == kUnits.end()) return std::nullopt;
  if (const auto whole = parse_whole<std::uint64_t>(number)) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(*whole, unit->bytes, &bytes)) return std::nullopt;
    return bytes;
  }
  const auto real = parse_real(number);
  if (!real || unit->bytes == 1 || *real * static_cast<double>(unit->bytes) >= 0x1p64) return std::nullopt;
  return static_cast<std::uint64_t>(*real * static_cast<double>(unit->bytes));
}

std::string bytes_text(std::uint64_t bytes) {
  for (const Unit &unit : {kUnits[9], kUnits[7], kUnits[5], kUnits[3]})
    if (bytes >= unit.bytes)
      return fmt::format("{:.2f} {}", static_cast<double>(bytes) / static_cast<double>(unit.bytes), unit.name);
  return fmt::format("{} bytes", bytes);
}

std::string real_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    if (end == text.size()) return parts;
    at = end + 1;
  }
}

std::string nearest_word(std::string_view word, const std::vector<std::string_view> &candidates) {
  const std::string_view start = word.substr(0, 64);  // edit_distance takes quadratic time, and the word may be long
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(start.size() / 2, 1);
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(start, candidate);
    if (distance > least || (distance == least && !nearest.empty())) continue;
    least = distance;
    nearest = candidate;
  }
  return std::string(nearest);
}

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool glob_match(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0, t = 0, star = kNone, retry = 0;  // retry: the end of what the last star matches so far
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != kNone) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

std::string about_wider_pattern(const std::string &pattern, const std::vector<std::string> &names) {
  const std::string wider = "*" + pattern + "*";
  std::vector<std::string> matched;
  std::ranges::copy_if(names, std::back_inserter(matched), [&](const auto &name) { return glob_match(wider, name); });
  std::ranges::sort(matched);
  const auto count = std::ranges::unique(matched).begin() - matched.begin();
  if (count == 0) return "";
  return fmt::format("; a pattern matches whole names, and \"{}\" matches {}", printable(wider), count);
}

bool any_glob(std::string_view patterns, std::string_view text) {
  const std::vector<std::string> all = split(patterns, '|');
  return std::any_of(all.begin(), all.end(), [&](const std::string &pattern) { return glob_match(pattern, text); });
}

std::uint64_t fnv1a(std::string_view text, std::uint64_t state) {
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return state;
}

std::string json_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else if (byte == '"' || byte == '\\')
      (out += '\\') += text[0];
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string printable(std::string_view text, std::size_t limit) {
  constexpr std::string_view kCut = "...";
  std::string out;
  std::size_t cut = 0;  // how much of `out` to keep if the mark must be added
  while (!text.empty() && out.size() <= limit) {
    std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    const bool c1 = length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;  // 8-bit escapes
    if (length == 0 || byte < 0x20 || byte == 0x7F || c1) {
      length = std::max<std::size_t>(length, 1);
      for (const char control : text.substr(0, length))
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(control));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
    if (out.size() + kCut.size() <= limit) cut = out.size();
  }
  return text.empty() && out.size() <= limit ? out : out.substr(0, cut).append(kCut);
}

}  // namespace protrain
