#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test::reduce_test {
namespace {

using Axes = std::vector<std::int64_t>;

TEST(ReduceKernel, NotANumberIsTheLargestAndTheSmallest) {
  std::vector<double> values(100, 1.0);
  values[63] = std::numeric_limits<double>::quiet_NaN();
  for (const char *op : {"ReduceMax", "ReduceMin", "ReduceSum"})
    for (std::int64_t axis : {0, 1}) {
      const OneNode one{op, {{"axes", Axes{axis}}}, {floats({10, 10}, values)}};
      const std::vector<double> y = run_on_cpu(one, 1)[0].doubles();
      EXPECT_EQ(1, std::count_if(y.begin(), y.end(), [](double v) { return std::isnan(v); })) << op;
    }
}

}  // namespace
}  // namespace protrain::test::reduce_test
