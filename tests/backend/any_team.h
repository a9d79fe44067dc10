// For kernels whose bits do not depend on the team's size.
#pragma once

#include "backend/kernel_check.h"

namespace protrain::test {

// expect_reference, and teams of 1, 2 and 3 members give the same bits.
inline void expect_reference_whatever_the_team(const OneNode &one, double tolerance = 1e-5) {
  expect_reference(one, tolerance);
  const std::vector<Array> alone = run_on_cpu(one, 1);
  for (int threads : {2, 3}) {
    const std::vector<Array> together = run_on_cpu(one, threads);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      if (!one.outputs[i]) continue;
      EXPECT_EQ(0, std::memcmp(alone[i].bytes(), together[i].bytes(), alone[i].stored_bytes()))
          << one.op << ": output " << i << " of " << threads << " threads has other bits than that of 1";
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
