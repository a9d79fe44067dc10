// JSON from files that nobody vouches for: no key twice, no deep nesting, not too many values, no number that is
// another one by the time it is read. Errors are Code::format with the file as their subject.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace protrain::state {

Json parse_strictly(std::string_view text, const std::string &file);

// A member of an object, of the type that the name says.
const Json &member(const Json &object, const char *key, const std::string &file);
const std::string &text_member(const Json &object, const char *key, const std::string &file);
std::uint64_t whole_member(const Json &object, const char *key, const std::string &file);

// An item's own value.
const Json::Array &items(const Json &item, const char *what, const std::string &file);
std::uint64_t whole(const Json &item, const char *what, const std::string &file);

}  // namespace protrain::state
