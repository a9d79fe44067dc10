#include "conformance/contest.h"
#include "kernel_nodes.h"

namespace protrain::test::rotary_test {
namespace {

PROTRAIN_FAMILY(RotaryKernel);

const RotaryCase kCases[] = {
    {{1, 1, 1, 2}, 2, false},    {{2, 5, 3, 8}, 8, false},   {{2, 5, 3, 8}, 8, true},  {{3, 7, 2, 10}, 6, true},
    {{2, 11, 4, 64}, 64, false}, {{2, 11, 4, 33}, 32, true}, {{0, 5, 3, 8}, 8, false},
};

TEST_P(RotaryKernel, EveryLayoutMatchesTheReference) {
  for (const RotaryCase &c : kCases)
    for (std::int64_t interleaved : {0, 1})
      for (std::int64_t inverse : {0, 1}) expect_reference(rotary(c, interleaved, inverse), 1e-6);
}

TEST_P(RotaryKernel, EitherTableMayBeSharedByTheBatch) {
  OneNode one = rotary({{2, 5, 3, 8}, 8, true}, 0, 0);
  one.inputs[1] = random_floats({1, 5, 4}, 4);
  expect_reference(one, 1e-6);
  std::swap(one.inputs[1], one.inputs[2]);
  expect_reference(one, 1e-6);
}

}  // namespace
}  // namespace protrain::test::rotary_test
