// A model that is drawn up for a machine on paper, as far as Programs: nothing is measured and nothing is run.
#pragma once

#include <memory>
#include <vector>

#include "fuzz/models.h"
#include "session/blueprint.h"
#include "session/site.h"

namespace protrain::fuzz {

struct Drawn {
  std::unique_ptr<session::PaperSite> site;
  session::Blueprint blueprint;

  const graph::Graph &graph() const { return blueprint.first().training.graph; }
};

// `layers` of models.h on the machine of this name.
inline Drawn draw_layers(int layers, const char *machine) {
  session::Options options;
  options.set("loss", "mse");
  options.set("dim", "batch=2");
  Drawn drawn{.site = std::make_unique<session::PaperSite>(profile::known_machine(machine)), .blueprint = {}};
  drawn.blueprint = session::draw_up(options, in_memory(layered_model(layers)), *drawn.site);
  return drawn;
}

}  // namespace protrain::fuzz
