// An array with one element for each value of an enum, found by that value: `bytes[Tier::host]`.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

namespace protrain {

// EnumArray is an aggregate, so it can be initialized with a list: EnumArray<Tier, 3, int>{1, 2, 3}. The enum has Count
// values, counted from 0.
template <typename Enum, std::size_t Count, typename T>
struct EnumArray {
  std::array<T, Count> values;

  constexpr T &operator[](Enum which) { return values[static_cast<std::size_t>(which)]; }
  constexpr const T &operator[](Enum which) const { return values[static_cast<std::size_t>(which)]; }

  constexpr auto begin() { return values.begin(); }
  constexpr auto begin() const { return values.begin(); }
  constexpr auto end() { return values.end(); }
  constexpr auto end() const { return values.end(); }
  constexpr void fill(const T &value) { values.fill(value); }

  bool operator==(const EnumArray &) const = default;
};

// Returns the enum value with this name, or an empty optional if there is none. `names` holds the names of all values,
// in order.
template <typename Enum, typename Names>
std::optional<Enum> value_named(std::string_view name, const Names &names) {
  const auto found = std::ranges::find(names, name);
  if (found == std::end(names)) return {};
  return static_cast<Enum>(found - std::begin(names));
}

// Returns all values of an enum, in order. The enum's values count from 0.
template <typename Enum, std::size_t Count>
constexpr std::array<Enum, Count> all_values() {
  std::array<Enum, Count> all{};
  for (std::size_t i = 0; i < Count; ++i) all[i] = static_cast<Enum>(i);
  return all;
}

}  // namespace protrain
