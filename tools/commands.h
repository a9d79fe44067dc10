// The subcommands. Each adds itself to the command line, and sets `status` to the exit status when it runs.
#pragma once

#include <CLI/CLI.hpp>

namespace tool {

// Exit statuses. A run that a signal ended returns 128 + the signal's number.
inline constexpr int kOk = 0, kFailed = 1, kUsage = 2;

void add_train(CLI::App &app, int &status);
void add_eval(CLI::App &app, int &status);
void add_check(CLI::App &app, int &status);
void add_plan(CLI::App &app, int &status);
void add_profile(CLI::App &app, int &status);
void add_inspect(CLI::App &app, int &status);
void add_merge(CLI::App &app, int &status);

}  // namespace tool
