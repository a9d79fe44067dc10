// protrain inspect: the training graph, the plan and the program of a model, as text.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "session_flags.h"

namespace tool {

namespace {

struct InspectFlags {
  std::string model, part;
  SessionFlags session;
};

struct Part {
  const char *name;
  protrain_error *(*text)(protrain_session *, const char **);
};
constexpr Part kParts[] = {
    {"graph", protrain_session_graph}, {"plan", protrain_session_plan}, {"program", protrain_session_program}};

void print_part(protrain_session *session, const Part &part) {
  const char *text = nullptr;
  check(part.text(session, &text));
  fmt::print("{}\n", text);
}

int inspect(const InspectFlags &flags) {
  const Options options = flags.session.make_options();
  bind_defaults(options, flags.model);
  const Session session = create_session(options, flags.model);
  for (const Part &part : kParts)
    if (flags.part.empty() || flags.part == part.name) print_part(session.get(), part);
  return kOk;
}

}  // namespace

void add_inspect(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("inspect", "print a model's training graph, plan and program");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("MODEL", flags->model, "an ONNX file")->required();
  command->add_option("PART", flags->part, "only the graph, plan or program; else all three")
      ->check(CLI::IsMember({"graph", "plan", "program"}));
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = inspect(*flags); });
}

}  // namespace tool
