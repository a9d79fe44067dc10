// The registry of backends. The CPU's backend is linked in. Every other backend is a plugin, loaded when one of its
// devices is asked for, so that the library needs no vendor's files.
#include <algorithm>
#include <iterator>

#include "backend/builtin.h"
#include "backend/plugin.h"
#include "base/error.h"
#include "base/plugin.h"
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
  std::string_view any = {};     // the name, such as "cuda", that gives each process of the machine its own device
};

std::unique_ptr<Device> open_cpu(const Backend &, const Request &request) {
  return cpu::open(request.device, request.threads, request.tf32);
}
std::unique_ptr<Device> open_in_plugin(const Backend &backend, const Request &request);

constexpr Backend kBackends[] = {
    {"cpu", open_cpu},
    {"cuda:*", open_in_plugin, "libprotrain_cuda.so", "CUDA", "cuda"},
};

int team_size(int threads) {
  require(threads >= 0 && threads <= kMostThreads, Code::arg, "threads",
          "{} threads were asked for; 0 to {} are allowed", threads, kMostThreads);
  return threads == 0 ? std::min(available_threads(), kMostThreads) : threads;
}

Plugin plugin_of(const Backend &backend) {
  return Plugin::load(backend.plugin, backend.vendor, "device", PROTRAIN_BUILD_ID);
}

std::unique_ptr<Device> open_in_plugin(const Backend &backend, const Request &request) {
  Error error(Code::internal, "device", fmt::format("the plugin for {} gave no device", backend.vendor));
  const auto open = plugin_of(backend).function<OpenDevice>(kOpenSymbol);
  std::unique_ptr<Device> opened(open(request.device, request.threads, request.tf32, error));
  if (!opened) throw std::move(error);
  return opened;
}

std::string joined_names(std::string_view separator) {
  std::string names;
  for (const Backend &backend : kBackends) {
    for (const std::string_view name : {backend.any, backend.devices}) {
      if (name.empty()) continue;
      if (!names.empty()) names += separator;
      names += name;
    }
  }
  return names;
}
}  // namespace

std::string_view device_names() {
  static const std::string &names = *new const std::string(joined_names("|"));  // readable while the process exits
  return names;
}

std::string device_of_process(const std::string &device, int process) {
  const auto *const backend = std::ranges::find(kBackends, std::string_view(device), &Backend::any);
  if (device.empty() || backend == std::end(kBackends)) return device;
  Error error(Code::internal, "device", "");
  const int count = plugin_of(*backend).function<CountDevices>(kCountSymbol)(error);
  if (count < 0) throw std::move(error);
  require(count > 0, Code::device, "device", "this machine has no device of {}'s", backend->vendor);
  return fmt::format("{}:{}", backend->any, process % count);
}

std::unique_ptr<Device> open(const std::string &name, int threads, bool tf32) {
  const std::string device = device_of_process(name, 0);
  const auto *const backend =
      std::ranges::find_if(kBackends, [&](const Backend &row) { return glob_match(row.devices, device); });
  require(backend != std::end(kBackends), Code::unsupported, "device", "there is no device \"{}\"; there are {}",
          device, joined_names(", "));
  return backend->open(*backend, {device, team_size(threads), tf32});
}

}  // namespace protrain::backend
