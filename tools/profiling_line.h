// What the terminal shows while the library measures the machine: a line that goes away when it is done.
#pragma once

#include "handles.h"

namespace tool {

class ProfilingLine {
 public:
  // Listens to calls with these options as long as it lives. Nothing is shown where stderr is no terminal.
  explicit ProfilingLine(const Options &options);
  ProfilingLine(const ProfilingLine &) = delete;
  ProfilingLine &operator=(const ProfilingLine &) = delete;
  ~ProfilingLine();

 private:
  static void hear(const char *line, void *self);

  const Options &options_;
  bool shown_ = false;
};

}  // namespace tool
