// Which devices there are. Those that are not the cpu come from a plugin, so that the library needs no vendor's files.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "backend/cpu/device.h"
#include "backend/plugin.h"
#include "base/error.h"
#include "base/threads.h"

namespace protrain::backend {

namespace {
constexpr const char *kCudaPlugin = "libprotrain_cuda.so";
constexpr int kMostThreads = 1024;

int team_size(int threads) {
  require(threads >= 0 && threads <= kMostThreads, Code::arg, "threads",
          "{} threads were asked for; 0 to {} are allowed", threads, kMostThreads);
  return threads == 0 ? std::min(available_threads(), kMostThreads) : threads;
}

// The folder that this code was loaded from: of libprotrain.so, or of the program it is linked into.
std::filesystem::path own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void *>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// Opened once and never closed: exceptions and kernels of it may be anywhere. Beside the library first, for what is
// installed together belongs together; then wherever the system looks.
void *open_plugin(const char *file) {
  std::error_code unreadable;
  const std::filesystem::path beside = own_folder() / file;
  const bool is_there = std::filesystem::exists(beside, unreadable);
  void *plugin = dlopen(is_there ? beside.c_str() : file, RTLD_NOW | RTLD_LOCAL);
  if (plugin != nullptr) return plugin;
  const char *reason = dlerror();
  fail(Code::unsupported, "device", "the plugin for CUDA cannot be loaded: {}", reason != nullptr ? reason : file);
}

template <typename Function>
Function *symbol(void *plugin, const char *name) {
  auto *found = reinterpret_cast<Function *>(dlsym(plugin, name));
  require(found != nullptr, Code::version, "device", "the plugin for CUDA is not one of this library's: it lacks {}",
          name);
  return found;
}

std::unique_ptr<Device> open_cuda(const std::string &device, int threads, bool tf32) {
  static void *const plugin = open_plugin(kCudaPlugin);  // tried again after a failure
  const char *build = symbol<BuildId>(plugin, kBuildIdSymbol)();
  require(std::string_view(build) == PROTRAIN_BUILD_ID, Code::version, "device",
          "the plugin for CUDA is of another build ({}) than the library ({}): install both from one", build,
          PROTRAIN_BUILD_ID);
  Error error(Code::internal, "device", "the plugin for CUDA gave no device");
  std::unique_ptr<Device> opened(symbol<OpenDevice>(plugin, kOpenSymbol)(device, threads, tf32, error));
  if (!opened) throw std::move(error);
  return opened;
}
}  // namespace

std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32) {
  if (device == "cpu") return open_cpu(team_size(threads));
  if (device.starts_with("cuda:")) return open_cuda(device, team_size(threads), tf32);
  fail(Code::unsupported, "device", "there is no device \"{}\"; there are cpu, and cuda:0, cuda:1, ...", device);
}

}  // namespace protrain::backend
