// Elements of every dtype, read and written as double or int64.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "graph/array.h"

namespace protrain::graph {

namespace {

// A bfloat16, which is the upper half of a float.
struct Bfloat16 {
  std::uint16_t bits;
  operator double() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

// Returns the bfloat16 nearest to `value`, ties to even. Rounds in two steps. The first, to float, truncates, and sets
// the last bit if anything was cut off ("round to odd"). The second, to bfloat16, then gives the same as a single
// rounding.
Bfloat16 bfloat16(double value) {
  if (std::isnan(value)) return {0x7fc0};
  float narrow = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(narrow);
  if (static_cast<double>(narrow) != value && std::isfinite(narrow)) {
    if (std::abs(static_cast<double>(narrow)) > std::abs(value)) --bits;
    bits |= 1;
  }
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

// A float16. The type is our own, because clang offers its float16 type only on processors that support it.
struct Float16 {
  std::uint16_t bits;
  operator double() const {
    const int exponent = (bits >> 10) & 0x1F, mantissa = bits & 0x3FF;
    double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 0x1F)
      magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
};

// Returns the float16 nearest to `value`, ties to even. Rounds to a multiple of 2^(exponent - 10), or of 2^-24 for
// subnormals. A mantissa that is rounded up past its end carries into the exponent.
Float16 float16(double value) {
  constexpr double kPast = 65520;  // the least value that rounds to infinity
  const double magnitude = std::abs(value);
  std::uint32_t bits = 0;
  if (std::isnan(value)) {
    bits = 0x7e00;
  } else if (magnitude >= kPast) {
    bits = 0x7c00;
  } else if (magnitude > 0) {
    const int exponent = std::max(std::ilogb(magnitude), -14);
    const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
    bits = (static_cast<std::uint32_t>(exponent + 14) << 10) + steps;
  }
  return {static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000u : 0u))};
}

template <typename T>
struct Tag {
  using type = T;
};

// Calls visit(Tag<T>{}) with the C++ type of a dtype.
template <typename Visit>
decltype(auto) with_type(DType dtype, Visit &&visit) {
  switch (dtype) {
    case DType::f32:
      return visit(Tag<float>{});
    case DType::f64:
      return visit(Tag<double>{});
    case DType::f16:
      return visit(Tag<Float16>{});
    case DType::bf16:
      return visit(Tag<Bfloat16>{});
    case DType::i8:
      return visit(Tag<std::int8_t>{});
    case DType::i16:
      return visit(Tag<std::int16_t>{});
    case DType::i32:
      return visit(Tag<std::int32_t>{});
    case DType::i64:
      return visit(Tag<std::int64_t>{});
    case DType::u8:
      return visit(Tag<std::uint8_t>{});
    case DType::u16:
      return visit(Tag<std::uint16_t>{});
    case DType::u32:
      return visit(Tag<std::uint32_t>{});
    case DType::u64:
      return visit(Tag<std::uint64_t>{});
    case DType::boolean:
      return visit(Tag<bool>{});
    case DType::none:
      break;
  }
  fail(Code::internal, "", "a value without a type has no elements");
}

template <typename T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  // If T has 64 bits, no double equals its largest integer. kHigh is then the next larger integer, which T cannot hold.
  // So the comparison with kHigh below is >=.
  constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= kLow) return std::numeric_limits<T>::min();
  if (value >= kHigh) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>)
    return value != From{0};
  else if constexpr (std::is_same_v<To, Bfloat16>)
    return bfloat16(static_cast<double>(value));
  else if constexpr (std::is_same_v<To, Float16>)
    return float16(static_cast<double>(value));
  else if constexpr (std::is_integral_v<To> && std::is_same_v<From, double>)
    return to_integer<To>(value);
  else
    return static_cast<To>(value);
}

// The type through which elements of type T are loaded and stored. It is a byte for bool, because a stored bool may be
// any byte, and all but 0 are true.
template <typename T>
using StorageType = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <typename T, typename To>
To load_as(const std::byte *at) {
  StorageType<T> value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::is_same_v<T, bool>)
    return value != 0 ? To{1} : To{0};
  else if constexpr (std::is_same_v<To, std::int64_t> && !std::is_integral_v<T>)
    return to_integer<std::int64_t>(static_cast<double>(value));
  else
    return static_cast<To>(value);
}

template <typename T, typename From>
void store_as(std::byte *at, From from) {
  const auto value = static_cast<StorageType<T>>(convert<T>(from));
  std::memcpy(at, &value, sizeof value);
}

template <typename To>
void load_run(DType dtype, const std::byte *at, std::int64_t step, std::int64_t count, To *to) {
  with_type(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t bytes = step * static_cast<std::int64_t>(sizeof(StorageType<T>));
    if (bytes == sizeof(StorageType<T>))
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = load_as<T, To>(at + i * static_cast<std::int64_t>(sizeof(StorageType<T>)));
    else
      for (std::int64_t i = 0; i < count; ++i) to[i] = load_as<T, To>(at + i * bytes);
  });
}

template <typename From>
void store_run(DType dtype, const From *from, std::int64_t count, std::byte *at) {
  with_type(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < count; ++i)
      store_as<T>(at + i * static_cast<std::int64_t>(sizeof(StorageType<T>)), from[i]);
  });
}

}  // namespace

void load(DType dtype, const std::byte *at, std::int64_t step, std::int64_t count, double *to) {
  load_run(dtype, at, step, count, to);
}
void load(DType dtype, const std::byte *at, std::int64_t step, std::int64_t count, std::int64_t *to) {
  load_run(dtype, at, step, count, to);
}
void store(DType dtype, const double *from, std::int64_t count, std::byte *at) { store_run(dtype, from, count, at); }
void store(DType dtype, const std::int64_t *from, std::int64_t count, std::byte *at) {
  store_run(dtype, from, count, at);
}

double load_double(DType dtype, const std::byte *at) {
  double value = 0;
  load(dtype, at, 1, 1, &value);
  return value;
}

std::int64_t load_integer(DType dtype, const std::byte *at) {
  std::int64_t value = 0;
  load(dtype, at, 1, 1, &value);
  return value;
}

void store_double(DType dtype, std::byte *at, double value) { store(dtype, &value, 1, at); }

void store_integer(DType dtype, std::byte *at, std::int64_t value) { store(dtype, &value, 1, at); }

}  // namespace protrain::graph
