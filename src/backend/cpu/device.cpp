// The CPU as a device: its memory is the host's, and one team of threads runs the launches of every queue in order.
#include <fmt/format.h>
#include <omp.h>

#include <cstring>
#include <map>

#include "backend/builtin.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/onednn.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/processor.h"
#include "base/processors.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kPage = 4096;  // members copy whole pages

// The clone that the loader picks on this processor. Tests the parts of x86-64-v3 and x86-64-v4, because clang does not
// know the levels by name.
const char *instruction_set() {
#if defined(__x86_64__) && !defined(PROTRAIN_NO_CLONES)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) return "AVX-512";
  if (v3) return "AVX2";
#endif
  return "baseline";
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads) : team_(threads, "protrain") {
    // oneDNN asks OpenMP how many threads to use, both when it creates a primitive and when it runs one. With one
    // thread oneDNN starts no OpenMP team. This matters because libgomp ends the process if it cannot start a team.
    // omp_set_num_threads itself allocates some hundred bytes for each thread, and ends the process if this allocation
    // fails. So require_heap is called first, which throws an Error instead.
    team_.enter([&] {
      team_.run([](Member &) {
        require_heap(4 << 10, "OpenMP");
        omp_set_num_threads(1);
      });
    });
    info_ = {.name = "cpu",
             .description = fmt::format("{}, {} threads, {}", processor_name(), team_.size(), instruction_set()),
             .libraries = onednn_name(),
             .kind = DeviceKind::cpu,
             .precisions = {DType::f32, DType::bf16, DType::f16},
             .memory_bytes = available_memory(),
             .shares_memory = true,
             .shares_cores = true,
             .threads = team_.size()};
  }

  const DeviceInfo &info() const override { return info_; }
  std::uint64_t cache_bytes() const override { return protrain::cache_bytes(); }

  std::unique_ptr<Kernel> compile(const KernelRequest &request) override {
    const Factory make = find_kernel(request.node.op);
    require(make != nullptr, Code::unsupported, subject(request), "the cpu has no kernel for {}", request.node.op);
    std::unique_ptr<Kernel> kernel;
    team_.enter([&] { kernel = make(request, team_.size()); });
    return kernel;
  }
  std::unique_ptr<Kernel> compile_update(const UpdateRequest &request) override { return make_update(request); }
  std::unique_ptr<Kernel> compile_check(DType dtype, const std::vector<std::uint32_t> &words) override {
    return make_check(dtype, words);
  }

  void *allocate_arena(std::uint64_t bytes) override {
    require(arena_.size() == 0, Code::internal, "cpu", "the arena was allocated before");
    arena_ = MemoryBlock(bytes, "device arena");
    return arena_.data();
  }
  void *allocate(std::uint64_t bytes) override {
    MemoryBlock block(bytes, "device memory");
    return blocks_.emplace(block.data(), std::move(block)).first->first;
  }
  void release(void *memory) override { blocks_.erase(static_cast<std::byte *>(memory)); }
  void write(void *device, const void *host, std::uint64_t bytes) override { copy_bytes(device, host, bytes); }
  void read(void *host, const void *device, std::uint64_t bytes) override { copy_bytes(host, device, bytes); }

  void run_step(void (*issue)(void *), void *argument) override { team_.enter(issue, argument); }

  void launch(Queue, Kernel &kernel, const Launch &launch) override {
    auto &work = static_cast<CpuKernel &>(kernel);
    team_.run([&](Member &member) { work.run(member, launch); });
  }

  void copy(Queue, const Copy &copy) override {
    team_.run([&](Member &member) {
      const Range own = share(static_cast<std::int64_t>(copy.bytes), kPage, member);
      copy_bytes(static_cast<std::byte *>(copy.to) + own.begin, static_cast<const std::byte *>(copy.from) + own.begin,
                 static_cast<std::uint64_t>(own.size()));
    });
  }

  void launch_alone(Kernel &kernel, const Launch &launch) override {
    Member member(0, 1, nullptr);
    static_cast<CpuKernel &>(kernel).run(member, launch);
  }
  void copy_alone(const Copy &copy) override { copy_bytes(copy.to, copy.from, copy.bytes); }

 private:
  static void copy_bytes(void *to, const void *from, std::uint64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  Team team_;
  DeviceInfo info_;
  MemoryBlock arena_;
  std::map<std::byte *, MemoryBlock> blocks_;  // the key is the address of the first byte
};
}  // namespace

std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32) {
  require(!tf32, Code::unsupported, "tf32", "TF32 is a GPU's; device {} multiplies float32 as it is", device);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace protrain::backend::cpu
