#include "session/checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "state/checkpoint.h"

namespace protrain::session {

namespace {

constexpr const char *kSkipped = "skipped", *kSeed = "seed", *kMicroBatch = "micro_batch";
constexpr const char *kLossScale = "loss_scale", *kApplied = "steps_at_loss_scale";

state::Description describe(const Blueprint &blueprint) {
  const bool adamw = blueprint.optimizer.kind == backend::Optimizer::Kind::adamw;
  state::Description description{.optimizer = adamw ? "adamw" : "sgd", .counters = {}, .parameters = {}};
  const graph::Graph &graph = blueprint.first().forward;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Value &value = graph.value(graph.parameters[p]);
    state::Parameter &parameter = description.parameters.emplace_back(
        state::Parameter{.name = value.name, .shape = value.type.shape, .arrays = {}});
    if (!blueprint.draft.state.parameters[p].trained) continue;
    for (int m = 1; m <= blueprint.optimizer.state_count(); ++m)
      parameter.arrays.push_back(adamw ? fmt::format("moment{}", m) : "momentum");
  }
  return description;
}

// A checkpoint that says nothing which this session would leave out: training would go on as another run.
state::Checkpoint open_checkpoint(const Options &options) {
  constexpr std::string_view kKnown[] = {state::kStep, kSkipped, kSeed, kMicroBatch, kLossScale, kApplied};
  state::Checkpoint checkpoint = state::Checkpoint::open(options.text("resume"));
  const auto &counters = checkpoint.description().counters;
  for (const auto &[name, value] : counters)
    require(std::ranges::find(kKnown, name) != std::end(kKnown), Code::format, checkpoint.path(),
            "its manifest has a counter '{}', which no session has", printable(name));
  require(counters.contains(kLossScale) == counters.contains(kApplied), Code::format, checkpoint.path(),
          "its manifest has one of the counters {} and {} without the other", kLossScale, kApplied);
  return checkpoint;
}

std::uint64_t counter(const state::Checkpoint &checkpoint, const char *name) {
  const auto &counters = checkpoint.description().counters;
  const auto found = counters.find(name);
  require(found != counters.end(), Code::format, checkpoint.path(), "its manifest has no counter {}", name);
  return found->second;
}

// Only float16 has one: training goes on in any precision, and in float16 with the first scale where there is none.
LossScale loss_scale_of(const state::Checkpoint &checkpoint) {
  if (!checkpoint.description().counters.contains(kLossScale)) return {};
  const LossScale scale(counter(checkpoint, kLossScale), counter(checkpoint, kApplied));
  require(scale.is_valid(), Code::format, checkpoint.path(), "its loss scale is {}, for {} steps", scale.value(),
          scale.applied());
  return scale;
}

}  // namespace

std::string save(Machine &machine, const Counters &counters, const std::string &directory) {
  state::Description description = describe(machine.blueprint());
  description.counters = {{state::kStep, counters.steps}, {kSkipped, counters.skipped}, {kSeed, counters.seed}};
  if (machine.blueprint().scales_loss()) {
    description.counters[kLossScale] = counters.loss_scale.value();
    description.counters[kApplied] = counters.loss_scale.applied();
  }
  if (machine.blueprint().micro_batch > 0) description.counters[kMicroBatch] = machine.blueprint().micro_batch;
  const run::Store::Sweep sweep(machine.store());
  return state::save(directory, description, [&](auto parameter, auto array, auto offset, auto out) {
    machine.parameters().read(parameter, array, offset, out);
  });
}

std::int64_t micro_batch_of_checkpoint(const Options &options) {
  if (!options.is_set("resume")) return 0;
  const auto checkpoint = open_checkpoint(options);
  const auto &counters = checkpoint.description().counters;
  const auto found = counters.find(kMicroBatch);
  if (found == counters.end()) return 0;
  constexpr std::uint64_t kMost = 1ull << 40;
  require(found->second > 0 && found->second < kMost, Code::format, checkpoint.path(), "its micro-batch is {}",
          found->second);
  return static_cast<std::int64_t>(found->second);
}

Counters resume(Machine &machine, const Options &options) {
  if (!options.is_set("resume")) return {.seed = static_cast<std::uint64_t>(options.integer("seed"))};
  const auto checkpoint = open_checkpoint(options);
  const Counters counters{.steps = counter(checkpoint, state::kStep),
                          .skipped = counter(checkpoint, kSkipped),
                          .seed = counter(checkpoint, kSeed),
                          .loss_scale = loss_scale_of(checkpoint)};
  require(counters.skipped <= counters.steps, Code::format, checkpoint.path(), "{} of {} steps were skipped",
          counters.skipped, counters.steps);
  require(counters.loss_scale.applied() <= counters.steps - counters.skipped, Code::format, checkpoint.path(),
          "{} steps at one loss scale, of {} that were not skipped", counters.loss_scale.applied(),
          counters.steps - counters.skipped);
  require(counters.seed >> 63 == 0, Code::format, checkpoint.path(), "its seed is {}, which no session's can be",
          counters.seed);
  require(!options.is_set("seed") || static_cast<std::uint64_t>(options.integer("seed")) == counters.seed,
          Code::mismatch, "seed", "the seed is {} and that of {} is {}; leave the option out to go on with it",
          options.integer("seed"), checkpoint.path(), counters.seed);
  run::Store::Sweep sweep(machine.store());
  checkpoint.load(describe(machine.blueprint()), [&](auto parameter, auto array, auto offset, auto bytes) {
    machine.parameters().write(parameter, array, offset, bytes);
  });
  sweep.finish();
  return counters;
}

}  // namespace protrain::session
