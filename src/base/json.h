// Json: a JSON value that can be read from text and written as text. nlohmann's library only parses the text and writes
// single values. Its own value class is not used, because its destructor allocates, which ends the process when memory
// is short.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/variant.h"

namespace protrain {

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order of the text

  Json() = default;  // null
  // json.cpp defines copy, move and destructor, because they are large and would otherwise be compiled into every file
  // that uses values.
  Json(const Json &);
  Json(Json &&) noexcept;
  Json &operator=(const Json &);
  Json &operator=(Json &&) noexcept;
  ~Json();
  Json(std::initializer_list<Member> members);
  template <typename T>
  requires std::is_arithmetic_v<T> Json(T value);
  template <std::convertible_to<std::string_view> T>
  Json(const T &text) : value_(std::string(std::string_view(text))) {}
  // A map becomes an object, any other range an array.
  template <std::ranges::input_range R>
  requires(!std::convertible_to<R, std::string_view>) Json(const R &range);

  static Json array(std::initializer_list<Json> items = {});
  static Json object();

  // Returns the member `key`, and adds it if it is missing. If this value is null, it becomes an object first.
  Json &operator[](std::string_view key);
  // append() adds a member to this object, and push_back() an item to this array. They return the added value. If this
  // value is null, it becomes an object or an array first.
  Json &append(std::string key, Json value);  // the key must be new
  Json &push_back(Json item);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Each of the next functions is for one kind of value. For a value of another kind it returns nullptr or an empty
  // optional.
  const Array *items() const { return std::get_if<Array>(&value_); }
  const Object *members() const { return std::get_if<Object>(&value_); }
  const std::string *text() const { return std::get_if<std::string>(&value_); }
  const bool *truth() const { return std::get_if<bool>(&value_); }
  const std::uint64_t *whole() const { return std::get_if<std::uint64_t>(&value_); }  // 0 to 2^64 - 1
  std::optional<double> number() const;                                               // any number
  const Json *find(std::string_view key) const;  // nullptr if it is not an object or has no such member

  // Returns the value as text: one line, or one line per value if `indent` is given. Bytes that are not UTF-8 become
  // U+FFFD.
  std::string dump(std::optional<int> indent = {}) const;

 private:
  using Value = Variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>;
  explicit Json(Value value);
  void write(std::string &out, std::optional<int> indent, int depth) const;

  Value value_;
};

struct Json::Member {
  Member(std::string key_, Json value_) : key(std::move(key_)), value(std::move(value_)) {}
  std::string key;
  Json value;
};

// Functions that make or destroy a Value are defined after Member, because clang needs the complete type there.
inline Json::Json(Value value) : value_(std::move(value)) {}
inline Json Json::array(std::initializer_list<Json> items) { return Json(Value(Array(items))); }
inline Json Json::object() { return Json(Value(Object())); }

template <typename T>
requires std::is_arithmetic_v<T> Json::Json(T value) {
  if constexpr (std::same_as<T, bool>)
    value_ = value;
  else if constexpr (std::floating_point<T>)
    value_ = static_cast<double>(value);
  else if (std::signed_integral<T> && value < T{})
    value_ = static_cast<std::int64_t>(value);
  else
    value_ = static_cast<std::uint64_t>(value);
}

template <std::ranges::input_range R>
requires(!std::convertible_to<R, std::string_view>) Json::Json(const R &range) {
  if constexpr (requires { range.begin()->second; }) {
    Object members;
    for (const auto &[key, value] : range) members.emplace_back(std::string(key), Json(value));
    value_ = std::move(members);
  } else {
    Array items;
    for (const auto &item : range) items.emplace_back(item);
    value_ = std::move(items);
  }
}

// Limits for a text: how deep it may nest, how many values it may have.
struct JsonLimits {
  std::size_t depth = 16;
  std::uint64_t values = ~std::uint64_t{0};
};

// Parses a JSON text. `subject` names the text in errors. Code::format if the text is not JSON, repeats a key or nests
// too deep; Code::limit for too many values.
Json parse_json(std::string_view text, const std::string &subject, const JsonLimits &limits = {});

}  // namespace protrain

// Writes a value into a message, as text that printable() has escaped and cut. The text is made only when the message
// is made, so a check that holds costs nothing.
template <>
struct fmt::formatter<protrain::Json> {
  constexpr auto parse(format_parse_context &context) { return context.begin(); }
  appender format(const protrain::Json &json, format_context &context) const;
};
