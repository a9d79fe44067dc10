// Elementwise operators on two numbers of one type, such as Add. Each is a struct with the name of ONNX's operator.
#pragma once

#include <concepts>
#include <type_traits>

#include "arith/math.h"

namespace protrain::arith::binary {

// The type that T is computed in. Signed integers are computed as unsigned ones, so that they wrap around.
template <typename T>
struct Wrapping {
  using type = T;
};
template <std::integral T>
struct Wrapping<T> {
  using type = std::make_unsigned_t<T>;
};

#define PROTRAIN_OPERATION(NAME, RESULT)                     \
  struct NAME {                                              \
    template <typename T>                                    \
    PROTRAIN_HD static auto of(T a, T b) {                   \
      using W [[maybe_unused]] = typename Wrapping<T>::type; \
      return RESULT;                                         \
    }                                                        \
  }
PROTRAIN_OPERATION(Add, static_cast<T>(static_cast<W>(a) + static_cast<W>(b)));
PROTRAIN_OPERATION(Sub, static_cast<T>(static_cast<W>(a) - static_cast<W>(b)));
PROTRAIN_OPERATION(Mul, static_cast<T>(static_cast<W>(a) * static_cast<W>(b)));
PROTRAIN_OPERATION(Max, a != a || a > b ? a : b);  // a NaN on either side is the result
PROTRAIN_OPERATION(Min, a != a || a < b ? a : b);
PROTRAIN_OPERATION(Equal, a == b);
PROTRAIN_OPERATION(Less, a < b);
PROTRAIN_OPERATION(LessOrEqual, a <= b);
PROTRAIN_OPERATION(Greater, a > b);
PROTRAIN_OPERATION(GreaterOrEqual, a >= b);
PROTRAIN_OPERATION(And, a != 0 && b != 0);
PROTRAIN_OPERATION(Or, a != 0 || b != 0);
PROTRAIN_OPERATION(Xor, (a != 0) != (b != 0));
#undef PROTRAIN_OPERATION

struct Div {
  template <typename T>
  PROTRAIN_HD static T of(T a, T b) {
    if constexpr (std::integral<T>) {
      if (b == 0) return 0;                  // CPU kernels refuse a divisor of 0, CUDA kernels note a fault
      if (b == -1) return Sub::of(T{0}, a);  // the smallest integer divided by -1 would trap
    }
    return a / b;
  }
};

}  // namespace protrain::arith::binary
