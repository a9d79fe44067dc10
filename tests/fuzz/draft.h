// Makes a draft of a session for a machine that is only described. Nothing is measured and nothing runs.
#pragma once

#include <memory>
#include <vector>

#include "draft/compile.h"
#include "fuzz/models.h"

namespace protrain::fuzz {

struct PaperDraft {
  std::unique_ptr<draft::PaperMachine> machine;
  draft::Draft draft;

  const graph::Graph &graph() const { return draft.first().training.graph; }
};

// A draft of layered_model(layers) for the known machine of this name.
inline PaperDraft draft_of_layers(int layers, const char *machine) {
  draft::Options options;
  options.set("loss", "mse");
  options.set("dim", "batch=2");
  PaperDraft paper{.machine = std::make_unique<draft::PaperMachine>(profile::known_machine(machine)), .draft = {}};
  paper.draft = draft::compile(draft::settings_of(options), in_memory(layered_model(layers)), *paper.machine);
  return paper;
}

}  // namespace protrain::fuzz
