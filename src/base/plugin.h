// A plugin is a part of the library in a file of its own, which is loaded when an option asks for it. So the library
// itself runs without CUDA's driver, without MPI and without Gloo.
#pragma once

#include <string_view>

namespace protrain {

// Every plugin exports this function. It returns the id of the build that the plugin comes from. Types that pass
// between the plugin and the library can differ from build to build, so load() refuses a plugin of another build.
using BuildId = const char *();
inline constexpr const char *kBuildIdSymbol = "protrain_plugin_build_id";

class Plugin {
 public:
  // Loads the file, unless it is loaded already. Looks first in this library's folder, because files that are installed
  // together belong together. Then looks where the system looks for libraries. A plugin is never closed, because its
  // exceptions and its code may still be in use. After a failure the next call tries again.
  //   file     the plugin's file, such as libprotrain_cuda.so
  //   vendor   what the plugin is for, in errors: "CUDA"
  //   subject  the option that asked for it, in errors
  //   build_id the id that the plugin must have
  // Code::unsupported if the file cannot be loaded, Code::version if it is no plugin or comes from another build.
  static Plugin load(const char *file, std::string_view vendor, std::string_view subject, std::string_view build_id);

  // Returns the exported function of this name. Code::version if there is none.
  template <typename Function>
  Function *function(const char *name) const {
    return reinterpret_cast<Function *>(find(name));
  }

 private:
  Plugin(void *handle, std::string_view vendor, std::string_view subject)
      : handle_(handle), vendor_(vendor), subject_(subject) {}
  void *find(const char *name) const;

  void *handle_;
  std::string_view vendor_, subject_;
};

}  // namespace protrain
