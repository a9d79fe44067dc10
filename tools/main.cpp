// The protrain command. Returns 0, 1 (an error), 2 (a wrong command line), or 128 + n after signal n.
#include <cstdio>
#include <exception>

#include "command_line.h"
#include "commands.h"
#include "handles.h"
#include "tell.h"

namespace {

int run(int argc, char **argv) {
  int status = tool::kOk;
  CLI::App app("Trains a model from an ONNX file.");
  app.set_version_flag("--version", protrain_version());
  app.require_subcommand(1);
  tool::add_train(app, status);
  tool::add_eval(app, status);
  tool::add_check(app, status);
  tool::add_plan(app, status);
  tool::add_profile(app, status);
  tool::add_inspect(app, status);
  tool::add_merge(app, status);
  tool::parse_command_line(app, argc, argv);
  // The results of all commands but train are on standard output alone.
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (lost && !app.got_subcommand("train")) throw tool::Failure("standard output could not be written");
  return status;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const tool::UsageError &error) {
    tool::tell("protrain: {}\n", error.what());
    return tool::kUsage;
  } catch (const std::exception &error) {
    tool::tell("protrain: {}\n", error.what());
    return tool::kFailed;
  }
}
