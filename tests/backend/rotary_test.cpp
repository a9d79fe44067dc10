#include "backend/kernel_check.h"
#include "kernel_nodes.h"

namespace protrain::test::rotary_test {
namespace {

TEST(RotaryKernel, TheInverseTurnsBack) {
  std::vector<double> cosines, sines;
  for (int i = 0; i < 5 * 4; ++i) cosines.push_back(std::cos(0.3 * i)), sines.push_back(std::sin(0.3 * i));
  for (std::int64_t interleaved : {0, 1}) {
    OneNode one = rotary({{2, 5, 3, 8}, 8, false}, interleaved, 0);
    one.inputs[1] = floats({1, 5, 4}, cosines);
    one.inputs[2] = floats({1, 5, 4}, sines);
    const Array x = one.inputs[0];
    one.inputs[0] = run_on_cpu(one, 2)[0];
    one.attributes.set("inverse", std::int64_t{1});
    EXPECT_LE(largest_error(run_on_cpu(one, 2)[0], x), 1e-6);
  }
}

}  // namespace
}  // namespace protrain::test::rotary_test
