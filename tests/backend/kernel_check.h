// Runs one node on the CPU, with a team of any number of threads.
#pragma once

#include "one_node.h"

namespace protrain::test {

// Returns the CPU device with this number of threads. Devices are kept for later tests.
inline Machine &cpu(int threads) {
  static std::map<int, Machine> machines;
  const auto found = machines.find(threads);
  if (found != machines.end()) return found->second;
  return machines.emplace(threads, Machine(backend::open("cpu", threads))).first->second;
}

struct CpuBench : NodeBench {
  CpuBench(const OneNode &one, int threads, std::size_t shift = 0) : NodeBench(one, cpu(threads), shift) {}
};

inline std::vector<Array> run_on_cpu(const OneNode &one, int threads, std::size_t shift = 0) {
  CpuBench bench(one, threads, shift);
  bench.run();
  bench.expect_guards();
  return bench.results();
}

// Runs the node. Returns the code of the protrain::Error that it throws, or Code::ok.
inline Code code_of_run(const OneNode &one, int threads) {
  CpuBench bench(one, threads);
  try {
    bench.run();
  } catch (const Error &error) {
    return error.code;
  }
  return Code::ok;
}

}  // namespace protrain::test
