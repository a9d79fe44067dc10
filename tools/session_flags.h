// The library's options as flags: `device_memory` is --device-memory. The table comes from the library, so that a new
// option needs nothing here; --set key=value reaches any.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"

namespace tool {

class SessionFlags {
 public:
  void add_to(CLI::App &command);
  Options make_options() const;  // UsageError for what the library refuses

 private:
  struct Flag {
    std::string key;
    std::vector<std::string> values;
  };
  std::deque<Flag> flags_;  // addresses stay: the parser writes to them
  std::vector<std::string> pairs_;
};

// Binds symbolic dimensions that no --dim binds to what `check` infers or assumes; it is said.
void bind_defaults(const Options &options, const std::string &model);

}  // namespace tool
