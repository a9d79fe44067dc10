// The registry of backends. The CPU's is linked in. Every other one is a plugin that is loaded when one of its devices
// is asked for, so that the library needs no vendor's files.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>

#include "backend/builtin.h"
#include "backend/plugin.h"
#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"

namespace protrain::backend {

namespace {
constexpr int kMostThreads = 1024;

struct Request {
  const std::string &device;
  int threads;
  bool tf32;
};

struct Backend {
  std::string_view devices;  // the names of the devices, as a glob: "*" stands for a number
  std::unique_ptr<Device> (*open)(const Backend &, const Request &);
  const char *plugin = nullptr;  // the plugin's file
  std::string_view vendor = {};  // the plugin's name in errors
};

std::unique_ptr<Device> open_cpu(const Backend &, const Request &request) {
  return cpu::open(request.device, request.threads, request.tf32);
}
std::unique_ptr<Device> open_in_plugin(const Backend &backend, const Request &request);

constexpr Backend kBackends[] = {
    {"cpu", open_cpu},
    {"cuda:*", open_in_plugin, "libprotrain_cuda.so", "CUDA"},
};

int team_size(int threads) {
  require(threads >= 0 && threads <= kMostThreads, Code::arg, "threads",
          "{} threads were asked for; 0 to {} are allowed", threads, kMostThreads);
  return threads == 0 ? std::min(available_threads(), kMostThreads) : threads;
}

// Returns the folder of libprotrain.so, or of the program that this code is linked into.
std::filesystem::path own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void *>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// Loads the plugin from the library's own folder, because files that are installed together belong together. If it is
// not there, the system looks in its own folders.
void *load_plugin(const Backend &backend) {
  std::error_code unreadable;
  const std::filesystem::path beside = own_folder() / backend.plugin;
  const bool is_there = std::filesystem::exists(beside, unreadable);
  void *plugin = dlopen(is_there ? beside.c_str() : backend.plugin, RTLD_NOW | RTLD_LOCAL);
  if (plugin != nullptr) return plugin;
  const char *reason = dlerror();
  fail(Code::unsupported, "device", "the plugin for {} cannot be loaded: {}", backend.vendor,
       reason != nullptr ? reason : backend.plugin);
}

// Returns the plugin, which the first call loads. A plugin is never closed, because its exceptions and kernels may
// still be in use. If loading fails, the next call tries again.
void *plugin_of(const Backend &backend) {
  static std::mutex mutex;
  static std::map<std::string_view, void *> plugins;
  const std::lock_guard lock(mutex);
  void *&plugin = plugins[backend.devices];
  if (plugin == nullptr) plugin = load_plugin(backend);
  return plugin;
}

template <typename Function>
Function *symbol(const Backend &backend, void *plugin, const char *name) {
  auto *found = reinterpret_cast<Function *>(dlsym(plugin, name));
  require(found != nullptr, Code::version, "device", "the plugin for {} is not one of this library's: it lacks {}",
          backend.vendor, name);
  return found;
}

std::unique_ptr<Device> open_in_plugin(const Backend &backend, const Request &request) {
  void *const plugin = plugin_of(backend);
  const char *build = symbol<BuildId>(backend, plugin, kBuildIdSymbol)();
  require(std::string_view(build) == PROTRAIN_BUILD_ID, Code::version, "device",
          "the plugin for {} is of another build ({}) than the library ({}): install both from one", backend.vendor,
          build, PROTRAIN_BUILD_ID);
  Error error(Code::internal, "device", fmt::format("the plugin for {} gave no device", backend.vendor));
  const auto open = symbol<OpenDevice>(backend, plugin, kOpenSymbol);
  std::unique_ptr<Device> opened(open(request.device, request.threads, request.tf32, error));
  if (!opened) throw std::move(error);
  return opened;
}

std::string joined_names(std::string_view separator) {
  std::string names;
  for (const Backend &backend : kBackends) {
    if (!names.empty()) names += separator;
    names += backend.devices;
  }
  return names;
}
}  // namespace

std::string_view device_names() {
  static const std::string names = joined_names("|");
  return names;
}

std::unique_ptr<Device> open(const std::string &device, int threads, bool tf32) {
  const auto *const backend =
      std::ranges::find_if(kBackends, [&](const Backend &row) { return glob_match(row.devices, device); });
  require(backend != std::end(kBackends), Code::unsupported, "device", "there is no device \"{}\"; there are {}",
          device, joined_names(", "));
  return backend->open(*backend, {device, team_size(threads), tf32});
}

}  // namespace protrain::backend
