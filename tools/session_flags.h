// The library's options as flags: `device_memory` is --device-memory. The table comes from the library, so a new option
// needs no change here. --set key=value reaches every option.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"

namespace tool {

class SessionFlags {
 public:
  void add_to(CLI::App &command);
  Options make_options() const;  // throws UsageError if the library refuses a value

 private:
  struct Flag {
    std::string key;
    std::vector<std::string> values;
  };
  std::deque<Flag> flags_;  // the parser holds addresses of elements, which a deque keeps
  std::vector<std::string> pairs_;
};

// Returns new options that have the values of `options` for which takes(key, value) is true. An option that is a list
// has several values.
Options copy_of(const Options &options, const std::function<bool(const std::string &, const std::string &)> &takes);

// True if a session with these options could be created for the model, as far as `check` can tell.
bool is_accepted(const Options &options, const std::string &model);

// True if the model can be trained with these sizes of its dimensions in place of those in `options`.
bool can_train(const Options &options, const std::string &model, const std::map<std::string, std::int64_t> &dims);

// Finds the symbolic dimensions that no --dim binds. Binds each of them to the size that `check` infers or assumes, and
// prints these sizes.
void bind_defaults(const Options &options, const std::string &model);

}  // namespace tool
