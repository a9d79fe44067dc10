// gpu_ballast cuda:0 BYTES: allocates all of a device's memory except BYTES and kContext, and holds it until the
// program reads a line. kContext leaves room for the tested process's CUDA context, which plans do not count.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {
constexpr std::size_t kPage = std::size_t{2} << 20;       // the driver's unit of allocation
constexpr std::size_t kContext = std::size_t{768} << 20;  // the tested process's context, cuBLAS and its workspace

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}
}  // namespace

int main(int count, char **words) {
  if (count != 3) return 2;
  const char *number = words[1];
  while (*number != '\0' && *number != ':') ++number;
  check(cudaSetDevice(*number == ':' ? std::atoi(number + 1) : 0));
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  const std::size_t spare = std::strtoull(words[2], nullptr, 10) + kContext;
  void *held = nullptr;
  if (free > spare + kPage) check(cudaMalloc(&held, (free - spare) / kPage * kPage));
  check(cudaMemGetInfo(&free, &total));
  std::printf("%zu\n", free);
  std::fflush(stdout);
  std::getchar();
}
