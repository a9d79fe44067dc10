// Blueprint: everything that is fixed once a session exists, as plain values: graphs, plan, state, Programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "grad/training.h"
#include "onnx_import/model.h"
#include "plan/plan.h"
#include "program/program.h"
#include "run/kernels.h"
#include "session/options.h"

namespace protrain::session {

// What happens to a step whose loss or gradients are not finite.
enum class NonfinitePolicy : std::uint8_t {
  stop,      // an error; in the overlap order some parameters may have taken the step
  skip,      // the step counts, no parameter changes
  rollback,  // an error, and everything is as before the step
};

// One binding of the model's symbolic dimensions, and what a session does under it.
struct Served {
  graph::Graph forward;  // without randomness: evaluation
  graph::ValueId loss = graph::ValueId::none;
  grad::Training training;
  program::Program step;        // the last or only micro-batch: ends in Updates
  program::Program accumulate;  // a micro-batch before the last; empty where there is none
  program::Program evaluation;
};

struct Blueprint {
  std::unique_ptr<onnx_import::Model> file;
  backend::Optimizer optimizer;
  NonfinitePolicy policy = NonfinitePolicy::stop;
  std::uint64_t accumulation = 1;  // micro-batches of a step
  plan::Plan plan;
  std::vector<bool> kept;  // per parameter: its gradient can be read
  program::State state;
  std::vector<std::unique_ptr<Served>> served;    // the first is that of the `dim` options, others of `shapes`
  std::array<std::uint64_t, kTierCount> bytes{};  // of each tier: the largest that a Program needs

  const Served &first() const { return *served.front(); }
};

// Loads, differentiates, plans, lowers and verifies. Code::budget where what was planned does not fit.
Blueprint draw_up(const Options &options, const std::string &path, run::Kernels &kernels,
                  const backend::DeviceInfo &device);

}  // namespace protrain::session
