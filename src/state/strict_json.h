// JSON from untrusted files: refuses repeated keys, deep nesting, too many values, and numbers that would change when
// read. Errors are Code::format with the file as their subject.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace protrain::state {

Json parse_strictly(std::string_view text, const std::string &file);

// Each returns the member `key` of an object. text_member() and whole_member() also check its type.
const Json &member(const Json &object, const char *key, const std::string &file);
const std::string &text_member(const Json &object, const char *key, const std::string &file);
std::uint64_t whole_member(const Json &object, const char *key, const std::string &file);

// Both return the value of `item`, and throw Code::format if it has another type. `what` names the item in errors.
const Json::Array &items(const Json &item, const char *what, const std::string &file);
std::uint64_t whole(const Json &item, const char *what, const std::string &file);

}  // namespace protrain::state
