#include "profiling_line.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tell.h"

namespace tool {

ProfilingLine::ProfilingLine(const Options &options) : options_(options) {
  if (isatty(STDERR_FILENO) != 0) check(protrain_options_set_log(options.get(), &ProfilingLine::show, this));
}

ProfilingLine::~ProfilingLine() {
  protrain_error_destroy(protrain_options_set_log(options_.get(), nullptr, nullptr));
  if (shown_) tell("\r\x1b[K");
}

void ProfilingLine::show(const char *line, void *self) {
  const auto event = nlohmann::json::parse(line);
  tell("\r\x1b[Kmeasuring this machine: {} of {}", event["done"].dump(), event["of"].dump());
  static_cast<ProfilingLine *>(self)->shown_ = true;
}

}  // namespace tool
