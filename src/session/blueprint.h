// Blueprint: everything that is fixed once a session exists, as plain values: graphs, plan, state, Programs.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "onnx_import/model.h"
#include "session/draft.h"
#include "session/options.h"
#include "session/planning.h"

namespace protrain::session {

// What happens to a step whose loss or gradients are not finite.
enum class NonfinitePolicy : std::uint8_t {
  stop,      // an error; in the overlap order some parameters may have taken the step
  skip,      // the step counts, no parameter changes
  rollback,  // an error, and everything is as before the step
};

// An initializer of the file that is a parameter again, or its transpose.
struct Tied {
  std::string parameter;
  bool turned = false;
};

struct Blueprint {
  std::unique_ptr<onnx_import::Model> file;
  std::vector<graph::Split> splits;    // parameters that the file has once for several
  std::map<std::string, Tied> tied;    // by the initializer's name
  std::vector<std::string> doubts;     // initializers that may not be what they were taken for
  std::vector<std::string> unmatched;  // names that were declared to be parameters and are no initializers
  std::string loss_from;               // of an attached loss: what it is computed from
  backend::Optimizer optimizer;
  NonfinitePolicy policy = NonfinitePolicy::stop;
  std::uint64_t accumulation = 1;               // micro-batches of a step
  std::uint64_t micro_batch = 0;                // samples of each, where that was settled; 0: the options say it
  std::vector<bool> kept;                       // per parameter: its gradient can be read
  std::vector<std::unique_ptr<Served>> served;  // the first is that of the `dim` options, others of `shapes`
  profile::Profile profile;
  Budget budget;
  Chosen chosen;
  Draft draft;                       // of the plan that was chosen
  std::vector<Predicted> predicted;  // per binding

  const Served &first() const { return *served.front(); }
  bool scales_loss() const { return first().training.loss_scale != graph::ValueId::none; }
  // The initializer that a parameter comes from.
  const std::string &in_file(const std::string &parameter) const {
    const auto split = std::ranges::find(splits, parameter, &graph::Split::name);
    return split == splits.end() ? parameter : split->original;
  }
};

// Loads, differentiates, measures, plans, lowers and verifies. Code::budget where nothing fits: with the smallest
// budget that does, and other changes that would.
Blueprint draw_up(const Options &options, const onnx_import::Source &source, Site &site);

// As above for a look alone: where nothing fits, the smallest plan, with `chosen.found.best` empty.
Blueprint sketch(const Options &options, const onnx_import::Source &source, Site &site);

}  // namespace protrain::session
