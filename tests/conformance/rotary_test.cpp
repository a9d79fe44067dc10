#include "conformance/contest.h"

namespace protrain::test {
namespace {

PROTRAIN_FAMILY(RotaryKernel);

struct Case {
  Shape x;              // (B, S, H, D)
  std::int64_t turned;  // dims that turn
  bool per_batch;       // angles of each batch row
};
const Case kCases[] = {
    {{1, 1, 1, 2}, 2, false},    {{2, 5, 3, 8}, 8, false},   {{2, 5, 3, 8}, 8, true},  {{3, 7, 2, 10}, 6, true},
    {{2, 11, 4, 64}, 64, false}, {{2, 11, 4, 33}, 32, true}, {{0, 5, 3, 8}, 8, false},
};

OneNode rotary(const Case &c, std::int64_t interleaved, std::int64_t inverse) {
  const Shape angles{c.per_batch ? c.x[0] : 1, c.x[1], c.turned / 2};
  return {"Rotary",
          {{"interleaved", interleaved}, {"rotary_dim", c.turned}, {"inverse", inverse}},
          {random_floats(c.x, 1), random_floats(angles, 2), random_floats(angles, 3)}};
}

TEST_P(RotaryKernel, EveryLayoutMatchesTheReference) {
  for (const Case &c : kCases)
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
}  // namespace protrain::test
