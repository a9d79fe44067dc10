// Shows a line on the terminal while the library measures the machine, and clears it at the end.
#pragma once

#include "handles.h"

namespace tool {

class ProfilingLine {
 public:
  // Listens to log lines of calls with these options until it is destroyed. Shows nothing if stderr is not a terminal.
  explicit ProfilingLine(const Options &options);
  ProfilingLine(const ProfilingLine &) = delete;
  ProfilingLine &operator=(const ProfilingLine &) = delete;
  ~ProfilingLine();

 private:
  static void show(const char *line, void *self);

  const Options &options_;
  bool shown_ = false;
};

}  // namespace tool
