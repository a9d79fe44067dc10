// The subcommands: each adds itself to the command line and returns its exit status when it is run.
#pragma once

#include <CLI/CLI.hpp>

namespace tool {

// Status of a run that a signal ended is 128 + its number.
inline constexpr int kOk = 0, kFailed = 1, kUsage = 2;

void add_train(CLI::App &app, int &status);
void add_check(CLI::App &app, int &status);
void add_plan(CLI::App &app, int &status);
void add_profile(CLI::App &app, int &status);
void add_inspect(CLI::App &app, int &status);

}  // namespace tool
