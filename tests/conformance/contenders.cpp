// Who takes part, and what each cannot do.
#include <algorithm>

#include "backend/cuda/device.h"
#include "conformance/contest.h"
#include "cuda/emulation.h"

namespace protrain::test {

namespace {
// Kept for all tests, and for the threads that some of them have.
Machine *machine(std::unique_ptr<backend::Device> device, std::uint64_t bytes = 1 << 30, bool reachable = true) {
  return new Machine(std::move(device), bytes, reachable);  // NOLINT: lives as long as the program
}

// In bfloat16 the cpu moves elements, and multiplies matrices.
std::vector<Exception> lacks_of_the_cpu() {
  constexpr std::string_view kHas[] = {"Transpose",
                                       "Slice",
                                       "SliceGrad",
                                       "Concat",
                                       "Split",
                                       "Expand",
                                       "Pad",
                                       "Trilu",
                                       "Gather",
                                       "GatherElements",
                                       "Where",
                                       "MatMul",
                                       "FusedAttention",
                                       "FusedAttentionGrad",
                                       "LinearCrossEntropy",
                                       "LinearCrossEntropyGrad"};
  std::vector<Exception> list;
  for (std::string_view op : ops::names())
    if (std::ranges::find(kHas, op) == std::end(kHas))
      list.push_back({op, "bf16", "the cpu's kernels are written for float32"});
  return list;
}

Contender cpu() {
  Contender contender{.name = "cpu",
                      .ways = {},
                      .unsupported = lacks_of_the_cpu(),
                      .expected_failures = {},
                      .other_bits = {"MatMul", "LinearCrossEntropy", "LinearCrossEntropyGrad"}};  // cut by the team
  for (int threads : {1, 2, 3})
    contender.ways.push_back({fmt::format("{} threads", threads), machine(backend::open("cpu", threads)), nullptr});
  return contender;
}

// The CUDA kernels, compiled for the host.
Contender emulated() {
  Machine *device = machine(backend::cuda::open("cuda:0"), 1 << 28);
  return {.name = "emulated",
          .ways = {{"threads forwards", device, [] { emulation::run_backwards(false); }},
                   {"threads backwards", device, [] { emulation::run_backwards(true); }}},
          .unsupported = {},
          .expected_failures = {},
          .other_bits = {}};
}

// A GPU, through the plugin, where there is one.
std::vector<Contender> gpus() {
  try {
    Machine *device = machine(backend::open("cuda:0", 0), 1 << 30, false);
    return {{.name = "cuda",
             .ways = {{"once", device, nullptr}, {"again", device, nullptr}},
             .unsupported = {},
             .expected_failures = {},
             .other_bits = {}}};
  } catch (const Error &) {
    return {};
  }
}
}  // namespace

const std::vector<Contender> &contenders() {
  static const std::vector<Contender> all = [] {
    std::vector<Contender> list = {cpu(), emulated()};
    for (Contender &gpu : gpus()) list.push_back(std::move(gpu));
    return list;
  }();
  return all;
}

}  // namespace protrain::test
