// The command line: parsing, and messages about what is wrong with it.
#pragma once

#include <CLI/CLI.hpp>

namespace tool {

// Parses the command line and runs its subcommand, or prints help or the version. Throws UsageError if the command line
// is wrong.
void parse_command_line(CLI::App &app, int argc, char **argv);

}  // namespace tool
