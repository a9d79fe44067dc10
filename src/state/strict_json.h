// JSON from untrusted files: refuses repeated keys, deep nesting, too many values, and numbers that would change when
// read. Errors are Code::format with the file as their subject.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace protrain::state {

Json parse_strictly(std::string_view text, const std::string &file);

// Each returns a member of an object, of the type in the function's name.
const Json &member(const Json &object, const char *key, const std::string &file);
const std::string &text_member(const Json &object, const char *key, const std::string &file);
std::uint64_t whole_member(const Json &object, const char *key, const std::string &file);

// Each returns an item's own value.
const Json::Array &items(const Json &item, const char *what, const std::string &file);
std::uint64_t whole(const Json &item, const char *what, const std::string &file);

}  // namespace protrain::state
