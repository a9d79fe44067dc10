#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test {
namespace {

using Axes = std::vector<std::int64_t>;
const char *const kReductions[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"};

struct Case {
  Shape shape;
  Axes axes;
};
const Case kCases[] = {
    {{}, {}},
    {{1}, {0}},
    {{7}, {}},
    {{13, 17, 19}, {}},
    {{13, 17, 19}, {0}},
    {{13, 17, 19}, {1}},
    {{13, 17, 19}, {-1}},
    {{13, 17, 19}, {0, 1}},
    {{13, 17, 19}, {0, 2}},
    {{13, 17, 19}, {1, 2}},
    {{3, 5, 7, 11}, {0, 2}},
    {{3, 5, 7, 11}, {1, 3}},
    {{3, 1, 7, 1}, {1, 3}},
    {{3, 1, 7, 1}, {0, 1}},
    {{1, 1, 1}, {1}},
    {{997, 3}, {0}},       // many blocks of short rows
    {{2, 9001}, {1}},      // rows of several segments
    {{70001}, {0}},        // several blocks of segments
    {{20011, 5}, {0}},     // blocks of more than the least length
    {{4, 2053}, {0}},      // few rows, several pieces
    {{3, 67, 1031}, {1}},  // two blocks for each result
};

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
}  // namespace protrain::test
