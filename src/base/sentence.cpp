// Looks for the subject of an error among the words of its text.
#include "base/sentence.h"

#include <algorithm>

#include "base/text.h"

namespace protrain {

namespace {

bool is_of_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c & 0x80) != 0;
}

// True if the characters in front of `at` and at `at` belong to one word.
bool is_inside_word(std::string_view text, std::size_t at) {
  return at > 0 && at < text.size() && is_of_word(text[at - 1]) && is_of_word(text[at]);
}

// True if `text` names `name`, that is, contains it as whole words. So "cannot list it" does not name a folder "c". No
// text names a name without letters and digits, such as ".". An empty name counts as named.
bool names(std::string_view text, std::string_view name) {
  if (name.empty()) return true;
  if (std::ranges::none_of(name, is_of_word)) return false;
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1))
    if (!is_inside_word(text, at) && !is_inside_word(text, at + name.size())) return true;
  return false;
}

}  // namespace

std::string sentence_about(std::string_view subject, std::string_view text) {
  const std::string shown = printable(subject);
  std::string sentence(text);
  return names(text, shown) ? sentence : sentence.insert(0, ": ").insert(0, shown);
}

}  // namespace protrain
