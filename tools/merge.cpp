// protrain merge: writes a model with an adapter merged into its weights.
#include <memory>

#include "commands.h"
#include "outputs.h"
#include "session_flags.h"

namespace tool {

namespace {

struct MergeFlags {
  std::string model, adapter, path;
  SessionFlags session;
};

int run_merge(const MergeFlags &flags) {
  const Options options = flags.session.make_options();
  require_writable({{Output::Kind::model, "OUT", flags.path}}, adapter_files("ADAPTER", flags.adapter));
  check(protrain_model_merge(options.get(), flags.model.c_str(), flags.adapter.c_str(), flags.path.c_str()));
  return kOk;
}

}  // namespace

void add_merge(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("merge", "write a model with an adapter merged into its weights");
  auto flags = std::make_shared<MergeFlags>();
  command->add_option("MODEL", flags->model, "an ONNX file")->required();
  command->add_option("ADAPTER", flags->adapter, "a directory with an adapter of Hugging Face's PEFT")->required();
  command->add_option("OUT", flags->path, "the ONNX file to write")->required();
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = run_merge(*flags); });
}

}  // namespace tool
