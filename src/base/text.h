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

// "20GiB", "1.5 GB", "4096": KB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB of 1024. Fractions round down.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string bytes_text(std::uint64_t bytes);  // "1.50 GiB", for people

// "0.001": the shortest decimal that reads back as the same number.
std::string real_text(double value);

std::vector<std::string> split(std::string_view text, char separator);  // "" gives {""}

// The candidate with the least edit distance; "" if none is closer than half the word.
std::string nearest_word(std::string_view word, const std::vector<std::string_view> &candidates);

bool one_of(std::string_view word, std::initializer_list<std::string_view> words);

// `*` matches any run of characters, `?` any one; every other character, '.' and '/' included, matches itself.
bool glob_match(std::string_view pattern, std::string_view text);
bool any_glob(std::string_view patterns, std::string_view text);  // several patterns separated by '|'

// The 64-bit FNV-1a hash, the same on every machine. `state` continues from the hash of earlier text.
std::uint64_t fnv1a(std::string_view text, std::uint64_t state = 0xCBF29CE484222325u);

// Escapes text to stand between the quotes of a JSON string. Bytes that are not UTF-8 become U+FFFD.
std::string json_escape(std::string_view text);

// Makes foreign text safe for a message. Control characters, terminal escapes and bytes that are not UTF-8 become \xHH.
// Text beyond `limit` bytes is cut and marked with "...".
std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace protrain
