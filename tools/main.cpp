// The protrain command. Returns 0, 1 (an error), 2 (a wrong command line), or 128 + n after signal n.
#include <fmt/format.h>

#include <exception>

#include "commands.h"
#include "handles.h"

namespace {

// Reports a misspelt flag before a missing one, because the missing one may be what was misspelt.
int refuse(const CLI::App &app, const CLI::ParseError &error) {
  for (const std::string &word : app.remaining(true))
    if (error.get_exit_code() != 0 && word.size() > 1 && word.front() == '-')
      throw tool::UsageError(
          fmt::format("there is no option {}; --help lists all options", word.substr(0, word.find('='))));
  return app.exit(error) == 0 ? tool::kOk : tool::kUsage;
}

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return refuse(app, error);
  }
  return status;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const tool::UsageError &error) {
    fmt::print(stderr, "protrain: {}\n", error.what());
    return tool::kUsage;
  } catch (const std::exception &error) {
    fmt::print(stderr, "protrain: {}\n", error.what());
    return tool::kFailed;
  }
}
