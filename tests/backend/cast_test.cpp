#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test::cast_test {
namespace {

TEST(CastKernel, FloatsOutsideTheRangeSaturate) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Array x =
      floats({7}, {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN(), 3e9, -3e9, 2.75, -2.75});
  const std::vector<Array> narrow = run_on_cpu({"Cast", {{"to", std::string("int32")}}, {x}}, 1);
  EXPECT_EQ(narrow[0].integers(), (std::vector<std::int64_t>{INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN, 2, -2}));
  const std::vector<Array> wide = run_on_cpu({"Cast", {{"to", std::string("int64")}}, {x}}, 1);
  EXPECT_EQ(wide[0].integers(), (std::vector<std::int64_t>{INT64_MAX, INT64_MIN, 0, 3000000000, -3000000000, 2, -2}));
}

TEST(CastKernel, NotANumberIsTrue) {
  const Array x = floats({3}, {std::numeric_limits<double>::quiet_NaN(), 0, -0.0});
  EXPECT_EQ(run_on_cpu({"Cast", {{"to", std::string("bool")}}, {x}}, 1)[0].integers(),
            (std::vector<std::int64_t>{1, 0, 0}));
}

TEST(CastKernel, NarrowFloatsAreRoundedOnce) {  // rounded to float32 first, x would be half way between two numbers
  const double above = 1 + 0x1p-8 + 0x1p-40, below = 1 + 3 * 0x1p-8 - 0x1p-40;
  const Array x = Array::from_doubles({DType::f64, {4}}, {above, below, -above, -below});
  const std::vector<double> y = run_on_cpu({"Cast", {{"to", std::string("bfloat16")}}, {x}}, 1)[0].doubles();
  const double step = 1 + 0x1p-7;
  EXPECT_EQ(y, (std::vector<double>{step, step, -step, -step}));
}

TEST(CastKernel, OtherTypesAreRefused) {
  EXPECT_THROW(CpuBench({"Cast", {{"to", std::string("uint8")}}, {random_floats({3}, 3)}}, 1), Error);
}

}  // namespace
}  // namespace protrain::test::cast_test
