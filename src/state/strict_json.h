// JSON from files that nobody vouches for: no key twice, no deep nesting, no number that is another one by the time it
// is read, and none of the parser's exceptions. Errors are Code::format with the file as their subject.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace protrain::state {

using Json = nlohmann::json;  // sorted: a key is found fast among a million

Json parse_strictly(std::string_view text, const std::string &file);

// A member of an object, of the type that the name says.
const Json &member(const Json &object, const char *key, const std::string &file);
std::string text_member(const Json &object, const char *key, const std::string &file);
std::uint64_t whole_member(const Json &object, const char *key, const std::string &file);

// An item's own value.
std::uint64_t whole(const Json &item, const char *what, const std::string &file);

}  // namespace protrain::state
