#include "base/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"

namespace protrain {

namespace {

// Returns the folder of libprotrain.so, or of the program that this code is linked into.
std::filesystem::path own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void *>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

void *open(const char *file, std::string_view vendor, std::string_view subject) {
  std::error_code unreadable;
  const std::filesystem::path beside = own_folder() / file;
  const bool is_there = std::filesystem::exists(beside, unreadable);
  void *handle = dlopen(is_there ? beside.c_str() : file, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char *reason = dlerror();
  fail(Code::unsupported, subject, "the plugin for {} cannot be loaded: {}", vendor, reason != nullptr ? reason : file);
}

// Returns the handle of the library `file`. The first call for this file opens the library.
void *handle_of(const char *file, std::string_view vendor, std::string_view subject) {
  static std::mutex mutex;
  static auto &handles = *new std::map<std::string, void *>;  // readable while the process exits
  const std::lock_guard lock(mutex);
  void *&handle = handles[file];
  if (handle == nullptr) handle = open(file, vendor, subject);
  return handle;
}

}  // namespace

Plugin Plugin::load(const char *file, std::string_view vendor, std::string_view subject, std::string_view build_id) {
  const Plugin plugin(handle_of(file, vendor, subject), vendor, subject);
  const std::string_view its_build = plugin.function<BuildId>(kBuildIdSymbol)();
  require(its_build == build_id, Code::version, subject,
          "the plugin for {} is of another build ({}) than the library ({}): install both from one", vendor, its_build,
          build_id);
  return plugin;
}

void *Plugin::find(const char *name) const {
  void *found = dlsym(handle_, name);
  require(found != nullptr, Code::version, subject_, "the plugin for {} is not one of this library's: it lacks {}",
          vendor_, name);
  return found;
}

}  // namespace protrain
