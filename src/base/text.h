// Text: numbers and sizes without a locale, nearest words, globs, and escapes that make text from files safe to print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace protrain {

// parse_integer() and parse_real() return the number that `text` spells, or an empty optional if `text` holds anything
// else. They use no locale, and accept no leading '+' or spaces. A real must be finite.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

// Returns the number of bytes that a text such as "20GiB", "1.5 GB" or "4096" spells. Returns an empty optional for any
// other text. KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024. Fractions are dropped.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string bytes_text(std::uint64_t bytes);  // "1.50 GiB", for people

// Returns the shortest decimal that reads back as the same number, such as "0.001".
std::string real_text(double value);

std::vector<std::string> split(std::string_view text, char separator);  // "" gives {""}

// Returns the candidate with the least edit distance to `word`. Returns "" if this distance is more than half the
// word's length (more than 1 for words of one letter).
std::string nearest_word(std::string_view word, const std::vector<std::string_view> &candidates);

bool one_of(std::string_view word, std::initializer_list<std::string_view> words);

// True if the pattern matches the whole text. `*` matches any number of characters, and `?` exactly one. Every other
// character matches itself, even '.' and '/'.
bool glob_match(std::string_view pattern, std::string_view text);
// For an error about a glob pattern that matches none of `names`: says how many different names contain what it
// matches. Returns "" if there are none.
std::string about_wider_pattern(const std::string &pattern, const std::vector<std::string> &names);
bool any_glob(std::string_view patterns, std::string_view text);  // several patterns separated by '|'

// Returns the 64-bit FNV-1a hash, which is the same on every machine. To hash a text in parts, pass the hash of the
// earlier parts as `state`.
std::uint64_t fnv1a(std::string_view text, std::uint64_t state = 0xCBF29CE484222325u);

// Escapes text to stand between the quotes of a JSON string. Bytes that are not UTF-8 become U+FFFD.
std::string json_escape(std::string_view text);

// Makes text from a file safe for a message. Control characters, terminal escapes and bytes that are not UTF-8 become
// \xHH. Text beyond `limit` bytes is cut and marked with "...".
std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace protrain
