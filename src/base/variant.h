// A std::variant that stays intact if copying it throws, for example because memory is short. If the copy constructor
// of an alternative throws inside a std::variant, g++ 12 destroys an alternative that was never constructed. This class
// constructs the alternative outside and moves it in.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>
#include <variant>

namespace protrain {

template <typename... Alternatives>
class Variant : public std::variant<Alternatives...> {
  using Base = std::variant<Alternatives...>;

 public:
  Variant() = default;
  Variant(const Variant &other) : Base(copy_of(other)) {}
  Variant(Variant &&) noexcept = default;
  template <typename T>
  requires(!std::derived_from<std::remove_cvref_t<T>, Base> && std::constructible_from<Base, T>) Variant(T &&value)
      : Base(std::decay_t<T>(std::forward<T>(value))) {}
  Variant &operator=(const Variant &other) { return *this = Variant(other); }
  Variant &operator=(Variant &&) noexcept = default;

 private:
  static_assert((std::is_nothrow_move_constructible_v<Alternatives> && ...));
  static Base copy_of(const Base &other) {
    return std::visit(
        [](const auto &alternative) {
          auto made = alternative;
          return Base(std::move(made));
        },
        other);
  }
};

}  // namespace protrain
