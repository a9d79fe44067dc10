// The library's options as flags: `device_memory` is --device-memory. The table comes from the library, so a new option
// needs no change here. --set key=value reaches every option.
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
  Options make_options() const;  // UsageError for values that the library refuses

 private:
  struct Flag {
    std::string key;
    std::vector<std::string> values;
  };
  std::deque<Flag> flags_;  // a deque keeps addresses, and the parser writes to them
  std::vector<std::string> pairs_;
};

// Binds symbolic dimensions that no --dim binds to the sizes that `check` infers or assumes, and prints them.
void bind_defaults(const Options &options, const std::string &model);

}  // namespace tool
