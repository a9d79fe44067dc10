#include "state/strict_json.h"

#include "base/error.h"

namespace protrain::state {

namespace {

constexpr std::size_t kDepth = 8;  // levels of nesting; no file of ours has as many
// The largest number of values in a file. Each value costs tens of bytes once parsed. A header of a million tensors has
// seven million values.
constexpr std::uint64_t kValues = 8'000'000;

}  // namespace

Json parse_strictly(std::string_view text, const std::string &file) {
  return parse_json(text, file, {.depth = kDepth, .values = kValues});
}

const Json &member(const Json &object, const char *key, const std::string &file) {
  require(object.members() != nullptr, Code::format, file, "expected an object with the key {}", key);
  const Json *found = object.find(key);
  require(found != nullptr, Code::format, file, "has no {}", key);
  return *found;
}

const std::string &text_member(const Json &object, const char *key, const std::string &file) {
  const std::string *text = member(object, key, file).text();
  require(text != nullptr, Code::format, file, "its {} is no text", key);
  return *text;
}

const Json::Array &items(const Json &item, const char *what, const std::string &file) {
  require(item.items() != nullptr, Code::format, file, "{} is no array", what);
  return *item.items();
}

std::uint64_t whole(const Json &item, const char *what, const std::string &file) {
  require(item.whole() != nullptr, Code::format, file, "its {} is no whole number from 0 to 2^64 - 1", what);
  return *item.whole();
}

std::uint64_t whole_member(const Json &object, const char *key, const std::string &file) {
  return whole(member(object, key, file), key, file);
}

}  // namespace protrain::state
