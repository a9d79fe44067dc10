// Text: numbers and sizes without a locale, nearest words, globs, and making foreign text safe to print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace protrain {

// The whole of `text` as a number, or nothing. No locale, no leading '+' or spaces; reals must be finite.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

// "20GiB", "1.5 GB", "4096": KB, MB, GB, TB count in thousands, KiB, MiB, GiB, TiB in 1024s. Fractions round down.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string bytes_text(std::uint64_t bytes);  // "1.50 GiB", for people

// "0.001": the shortest decimal that reads back as the same number.
std::string real_text(double value);

std::vector<std::string> split(std::string_view text, char separator);  // "" gives {""}

// The candidate with the least edit distance; "" where none is closer than half the word.
std::string nearest_word(std::string_view word, const std::vector<std::string_view> &candidates);

bool one_of(std::string_view word, std::initializer_list<std::string_view> words);

// `*` stands for any run of characters, `?` for any one; everything else, '.' and '/' too, for itself.
bool glob_match(std::string_view pattern, std::string_view text);
bool any_glob(std::string_view patterns, std::string_view text);  // of several patterns with '|' between them

// The 64-bit FNV-1a hash, the same on every machine for ever; `state` continues that of the text before.
std::uint64_t fnv1a(std::string_view text, std::uint64_t state = 0xCBF29CE484222325u);

// What stands between the quotes of a JSON string; bytes that are not UTF-8 become U+FFFD.
std::string json_escape(std::string_view text);

// Foreign text for a message: control characters, terminal escapes and bytes that are not UTF-8 as \xHH, and no more
// than `limit` bytes ("..." marks the cut).
std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace protrain
