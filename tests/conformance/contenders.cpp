// The contenders (contest.h), and what each does not support.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "backend/cuda/device.h"
#include "conformance/contest.h"
#include "cuda/emulation.h"

namespace protrain::test {

namespace {
// A machine that all tests share. It is never destroyed.
Machine *machine(std::unique_ptr<backend::Device> device, std::uint64_t bytes = 1 << 30, bool reachable = true) {
  return new Machine(std::move(device), bytes, reachable);  // NOLINT: lives as long as the program
}

Contender cpu() {
  Contender contender{.name = "cpu",
                      .ways = {},
                      .unsupported = {},
                      .expected_failures = {},
                      // The bits of these operators' results depend on the number of threads.
                      .other_bits = {"MatMul", "LinearCrossEntropy", "LinearCrossEntropyGrad", "LstmSteps",
                                     "LstmStepsGrad", "GruSteps", "GruStepsGrad", "RnnSteps", "RnnStepsGrad"}};
  for (int threads : {1, 2, 3})
    contender.ways.push_back({fmt::format("{} threads", threads), machine(backend::open("cpu", threads)), nullptr});
  return contender;
}

// The CUDA kernels, compiled for the host.
Contender emulated() {
  Machine *device = machine(backend::cuda::open("cuda:0", 3, false), 1 << 28);
  return {.name = "emulated",
          .ways = {{"threads forwards", device, [] { emulation::run_backwards(false); }},
                   {"threads backwards", device, [] { emulation::run_backwards(true); }}},
          .unsupported = {},
          .expected_failures = {},
          .other_bits = {}};
}

// Opens a GPU through the plugin, if there is one. PROTRAIN_REQUIRED_DEVICE can name the device to open. If that device
// does not open, the program ends with an error, because a check of a GPU must not pass without the GPU. If no device
// is required and NVIDIA's driver is missing, the plugin is not loaded at all: loading takes a tenth of a second, and
// ctest starts a process for each test.
std::vector<Contender> gpus() {
  const char *required = std::getenv("PROTRAIN_REQUIRED_DEVICE");
  if (required == nullptr && !std::filesystem::exists("/dev/nvidiactl")) return {};
  try {
    Machine *device = machine(backend::open(required != nullptr ? required : "cuda:0", 0), 1 << 30, false);
    return {{.name = "cuda",
             .ways = {{"once", device, nullptr}, {"again", device, nullptr}},
             .unsupported = {},
             .expected_failures = {},
             .other_bits = {}}};
  } catch (const Error &error) {
    if (required == nullptr) return {};
    std::fprintf(stderr, "%s is required and does not open: %s\n", required, error.what());
    std::exit(1);
  }
}
}  // namespace

const std::vector<Contender> &contenders() {
  static const std::vector<Contender> &all = *[] {
    auto *list = new std::vector<Contender>{cpu(), emulated()};  // NOLINT: lives as long as the program
    for (Contender &gpu : gpus()) list->push_back(std::move(gpu));
    return list;
  }();
  return all;
}

}  // namespace protrain::test
