#include "conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "array_layout.h"
#include "handles.h"

namespace tool {

namespace {

struct Named {
  const char *name;
  protrain_dtype dtype;
};
constexpr Named kNames[] = {
    {"float32", PROTRAIN_FLOAT32},   {"float64", PROTRAIN_FLOAT64}, {"float16", PROTRAIN_FLOAT16},
    {"bfloat16", PROTRAIN_BFLOAT16}, {"int8", PROTRAIN_INT8},       {"int16", PROTRAIN_INT16},
    {"int32", PROTRAIN_INT32},       {"int64", PROTRAIN_INT64},     {"uint8", PROTRAIN_UINT8},
    {"uint16", PROTRAIN_UINT16},     {"uint32", PROTRAIN_UINT32},   {"uint64", PROTRAIN_UINT64},
    {"bool", PROTRAIN_BOOL}};

const char *name_of(protrain_dtype dtype) {
  return std::find_if(std::begin(kNames), std::end(kNames), [&](const Named &n) { return n.dtype == dtype; })->name;
}

bool is_float(protrain_dtype dtype) {
  return dtype == PROTRAIN_FLOAT32 || dtype == PROTRAIN_FLOAT64 || dtype == PROTRAIN_FLOAT16 ||
         dtype == PROTRAIN_BFLOAT16;
}

struct Half {  // IEEE 754's binary16
  std::uint16_t bits;
  explicit operator float() const {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    if (exponent == 31)
      size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return bits >> 15 != 0 ? -size : size;
  }
};

struct Bfloat16 {
  std::uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

// Calls `use` with a value of the C++ type for `dtype`.
template <typename Use>
void with_type(protrain_dtype dtype, Use &&use) {
  switch (dtype) {
    case PROTRAIN_FLOAT64:
      return use(double{});
    case PROTRAIN_FLOAT16:
      return use(Half{});
    case PROTRAIN_BFLOAT16:
      return use(Bfloat16{});
    case PROTRAIN_INT8:
      return use(std::int8_t{});
    case PROTRAIN_INT16:
      return use(std::int16_t{});
    case PROTRAIN_INT32:
      return use(std::int32_t{});
    case PROTRAIN_INT64:
      return use(std::int64_t{});
    case PROTRAIN_UINT8:
      return use(std::uint8_t{});
    case PROTRAIN_UINT16:
      return use(std::uint16_t{});
    case PROTRAIN_UINT32:
      return use(std::uint32_t{});
    case PROTRAIN_UINT64:
      return use(std::uint64_t{});
    case PROTRAIN_BOOL:
      return use(bool{});
    default:
      return use(float{});
  }
}

[[noreturn]] void refuse(const std::string &subject, const std::string &value, protrain_dtype to) {
  throw Failure(fmt::format("{}: {} is no {}", subject, value, name_of(to)));
}

void store_whole(std::int64_t value, protrain_dtype to, std::byte *out, const std::string &subject) {
  with_type(to, [&](auto element) {
    using To = decltype(element);
    if constexpr (std::is_same_v<To, bool>) {
      if (value != 0 && value != 1) refuse(subject, std::to_string(value), to);
    } else if constexpr (std::is_integral_v<To>) {
      if (!std::in_range<To>(value)) refuse(subject, std::to_string(value), to);
    }
    if constexpr (std::is_integral_v<To>) element = static_cast<To>(value);
    std::memcpy(out, &element, sizeof element);
  });
}

}  // namespace

protrain_dtype taken_as(protrain_dtype from, const std::string &wanted, const std::string &subject,
                        const std::string &input) {
  const auto found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Named &named) { return wanted == named.name; });
  if (found == std::end(kNames) || found->dtype == from) return from;
  if (is_float(found->dtype)) return PROTRAIN_FLOAT32;
  if (!is_float(from)) return found->dtype;
  throw Failure(fmt::format("{}: holds {}, and input {} takes {}", subject, name_of(from), input, wanted));
}

std::vector<std::byte> converted(const std::vector<std::byte> &elements, protrain_dtype from, protrain_dtype to,
                                 const std::string &subject) {
  const std::size_t bytes = element_bytes(from), taken = element_bytes(to), count = elements.size() / bytes;
  std::vector<std::byte> result(count * taken);
  with_type(from, [&](auto element) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&element, &elements[i * bytes], bytes);
      if (to == PROTRAIN_FLOAT32) {
        const auto value = static_cast<float>(element);
        std::memcpy(&result[i * taken], &value, taken);
      } else if constexpr (std::is_integral_v<decltype(element)>) {
        if (!std::in_range<std::int64_t>(element + 0)) refuse(subject, std::to_string(element), to);
        store_whole(static_cast<std::int64_t>(element), to, &result[i * taken], subject);
      }
    }
  });
  return result;
}

}  // namespace tool
