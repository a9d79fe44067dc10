// For kernels whose bits do not depend on the team's size.
#pragma once

#include "backend/kernel_check.h"

namespace protrain::test {

// Teams of 1, 2 and 3 members give the reference within `tolerance` (integers and bools: exactly), at different
// addresses and all the same bits.
inline void expect_reference_whatever_the_team(const OneNode &one, double tolerance = 1e-5) {
  const std::vector<Array> expected = reference(one), alone = run_on_cpu(one, 1);
  SCOPED_TRACE(one.op + ", attributes " + one.attributes.print() + ", input " + to_text(one.inputs[0].type()));
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (!one.outputs[i]) continue;
    EXPECT_EQ(alone[i].type(), expected[i].type()) << "output " << i;
    EXPECT_LE(largest_error(alone[i], expected[i]), is_float(expected[i].dtype()) ? tolerance : 0) << "output " << i;
  }
  for (int threads : {2, 3}) {
    const std::vector<Array> together = run_on_cpu(one, threads, static_cast<std::size_t>(threads) * 64);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      if (!one.outputs[i]) continue;
      EXPECT_TRUE(alone[i].same_as(together[i]))
          << "output " << i << " of " << threads << " threads has other bits than that of 1";
    }
  }
}

inline Array floats(const Shape &shape, const std::vector<double> &values) {
  return Array::from_doubles({DType::f32, shape}, values);
}

// The code of the protrain::Error that running the node raises; Code::ok where it raises none.
inline Code code_of_run(const OneNode &one, int threads) {
  Bench bench(one, threads);
  try {
    bench.run();
  } catch (const Error &error) {
    return error.code;
  }
  return Code::ok;
}

}  // namespace protrain::test
