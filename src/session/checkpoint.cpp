#include "session/checkpoint.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "draft/checkpoint_counters.h"
#include "draft/ranked_machine.h"
#include "state/checkpoint.h"

namespace protrain::session {

namespace {

using draft::counter;
using draft::find_counter;
using draft::kApplied;
using draft::kBase;
using draft::kLossScale;
using draft::kMicroBatch;
using draft::kScales;
using draft::kSeed;
using draft::kSkipped;

// Returns a checkpoint's description of the optimizer and the parameters. The parameters are those of
// Parameters::shown(), in the same order.
state::Description describe(const draft::Draft &draft, const Parameters &parameters) {
  const std::vector<graph::OptimizerArray> arrays = draft.settings.optimizer.state();
  state::Description description{.optimizer = draft.settings.optimizer.name(), .counters = {}, .parameters = {}};
  for (const std::size_t p : parameters.shown()) {
    state::Parameter &parameter = description.parameters.emplace_back(
        state::Parameter{.name = parameters.name(p), .shape = parameters.shape(p), .arrays = {}});
    if (!draft.programs.state.parameters[p].trained) continue;
    for (const graph::OptimizerArray &array : arrays)
      parameter.arrays.push_back(
          {.name = array.name, .dtype = array.dtype, .elements = array.count(parameters.elements(p))});
  }
  return description;
}

state::Read reader_of(Parameters &parameters) {
  return [&](std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out) {
    parameters.read_owned(parameters.shown()[parameter], array, offset, out);
  };
}

// Returns a function that reads what this rank owns. After every kRoundBytes the function calls pulse(), which waits
// for the other ranks.
state::Read in_rounds(Parameters &parameters, const Ranks::Pulse &pulse) {
  constexpr std::uint64_t kRoundBytes = 256 << 20;
  return [&, read = std::uint64_t{0}](std::size_t parameter, std::size_t array, std::uint64_t offset,
                                      std::span<std::byte> out) mutable {
    const std::uint64_t round = read / kRoundBytes;
    read += out.size();
    if (read / kRoundBytes != round) pulse();
    parameters.read_owned(parameters.shown()[parameter], array, offset, out);
  };
}

// Returns the checkpoint's loss scale, or the initial loss scale if the checkpoint has none. Only training in float16
// saves a loss scale, and the checkpoint can come from a session with another precision.
LossScale loss_scale_of(const state::Checkpoint &checkpoint) {
  if (!checkpoint.description().counters.contains(kLossScale)) return {};
  const LossScale scale(counter(checkpoint, kLossScale), counter(checkpoint, kApplied));
  require(scale.is_valid(), Code::format, checkpoint.path(), "its loss scale is {}, for {} steps", scale.value(),
          scale.applied());
  return scale;
}

// True if the session has a base: frozen weights beside adapters, or rounded frozen weights. No checkpoint holds it.
bool has_base(const draft::Draft &draft) { return !draft.adapters.empty() || !draft.rounded.empty(); }

// Throws Code::mismatch if the checkpoint was trained beside a base and the session has none, or the other way round.
// Also throws if the hashes of the two bases differ. A checkpoint that was trained beside rounded weights without
// adapters may lack the hash, because earlier releases did not save it.
void require_base(const draft::Draft &draft, const Parameters &parameters, const state::Checkpoint &checkpoint) {
  const std::optional<std::uint64_t> base = find_counter(checkpoint, kBase);
  require(!base || has_base(draft), Code::mismatch, checkpoint.path(),
          "holds what was trained beside a frozen base, and not the base; set the option lora or base_precision as it "
          "was when it was saved");
  require(base || draft.adapters.empty(), Code::mismatch, checkpoint.path(),
          "holds a whole model and no adapters; leave the option lora out, or begin from its export");
  require(!base || *base == parameters.base(), Code::mismatch, checkpoint.path(),
          "it was trained on other frozen weights (hash {:016x}) than this model has (hash {:016x}); give the same "
          "model, and base_precision as it was when it was saved",
          base.value_or(0), parameters.base());
}

// Returns a hash of the adapters' names and scales.
std::uint64_t hash_of_scales(const std::vector<passes::Adapter> &adapters) {
  std::string all;
  for (const passes::Adapter &adapter : adapters)
    all += fmt::format("{} {}\n", adapter.a.name, adapter.request.scale());
  return checksum(std::as_bytes(std::span(all)));
}

// Throws Code::mismatch if the checkpoint's adapters were trained with other scales than the session's adapters have.
// Checkpoints of earlier releases lack the hash of the scales and are not checked.
void require_scales(const draft::Draft &draft, const state::Checkpoint &checkpoint) {
  const std::optional<std::uint64_t> scales = find_counter(checkpoint, kScales);
  require(!scales || *scales == hash_of_scales(draft.adapters), Code::mismatch, checkpoint.path(),
          "its adapters were trained with other scales (alpha / rank) than they have here; give the alphas of lora, "
          "lora_alpha and lora_scaling, or the adapter, as they were when it was saved");
}

std::map<std::string, std::uint64_t> counters_of(const draft::Draft &draft, const Parameters &parameters,
                                                 const Counters &counters) {
  std::map<std::string, std::uint64_t> all = {
      {state::kStep, counters.steps}, {kSkipped, counters.skipped}, {kSeed, counters.seed}};
  if (draft.scales_loss()) {
    all[kLossScale] = counters.loss_scale.value();
    all[kApplied] = counters.loss_scale.applied();
  }
  if (draft.micro_batch > 0) all[kMicroBatch] = draft.micro_batch;
  if (has_base(draft)) all[kBase] = parameters.base();
  if (!draft.adapters.empty()) all[kScales] = hash_of_scales(draft.adapters);
  return all;
}

// Saves a checkpoint of several ranks. Rank 0 creates the folder and completes the checkpoint.
class RanksCheckpoint {
 public:
  RanksCheckpoint(const state::Description &description, Parameters &parameters, Ranks &ranks)
      : description_(description), parameters_(parameters), ranks_(ranks) {}

  // Returns the checkpoint's path. Each rank writes the elements that it owns, if all ranks see rank 0's folder and a
  // checkpoint can have so many parts. Otherwise rank 0 writes everything.
  std::string save(const std::string &directory, std::uint64_t step) {
    const std::string folder = ranks_.on_all([&](const Ranks::Pulse &) {
      if (ranks_.rank() == 0) saving_.emplace(directory, step);
      return saving_ ? base_name(saving_->folder()) : std::string();
    })[0];
    const std::string path = directory + "/" + folder;
    const auto all_see =
        ranks_.on_all([&](const Ranks::Pulse &) { return std::string(state::sees(path) ? "yes" : "no"); });
    const bool together = std::ranges::count(all_see, "yes") == ranks_.count() && all_see.size() <= state::kMostParts;
    return together ? save_in_parts(path) : save_on_rank_0();
  }

 private:
  std::string save_in_parts(const std::string &path) {
    const auto parts = ranks_.on_all([&](const Ranks::Pulse &pulse) {
      const state::Part part = {.number = static_cast<std::size_t>(ranks_.rank()),
                                .count = static_cast<std::size_t>(ranks_.count()),
                                .elements = parameters_.owned()};
      return state::save_part(path, description_, part, in_rounds(parameters_, pulse));
    });
    return ranks_.on_all(
        [&](const Ranks::Pulse &) { return saving_ ? saving_->finish(description_, parts) : std::string(); })[0];
  }

  std::string save_on_rank_0() {
    return ranks_.on_rank_0(parameters_, [&](const state::Read &read) {
      const auto shown = [&](std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out) {
        read(parameters_.shown()[parameter], array, offset, out);
      };
      return saving_->finish(description_, {state::save_part(saving_->folder(), description_, {}, shown)});
    });
  }

  const state::Description &description_;
  Parameters &parameters_;
  Ranks &ranks_;
  std::optional<state::Saving> saving_;  // of rank 0
};

// Loads a checkpoint into the session's parameters.
void load_into(Parameters &parameters, const draft::Draft &draft, const state::Checkpoint &checkpoint) {
  checkpoint.load(describe(draft, parameters), [&](auto parameter, auto array, auto offset, auto bytes) {
    parameters.write(parameters.shown()[parameter], array, offset, bytes);
  });
}

bool has_average(const state::Parameter &parameter) {
  return !parameter.arrays.empty() && parameter.arrays.front().name == backend::kAverageName;
}

// Loads the weights of a checkpoint of any optimizer. If `averages` is true, loads the moving averages of weights in
// their place. Parameters without one, such as frozen weights, keep their weights.
void load_weights(Parameters &parameters, const draft::Draft &draft, const state::Checkpoint &checkpoint,
                  bool averages) {
  const state::Description &saved = checkpoint.description();
  require(!averages || std::ranges::any_of(saved.parameters, has_average), Code::mismatch, checkpoint.path(),
          "holds no moving averages of weights, because it was saved without ema; leave eval_weights out");
  state::Description wanted = describe(draft, parameters);
  wanted.optimizer = saved.optimizer;
  for (state::Parameter &parameter : wanted.parameters)
    if (const auto same = std::ranges::find(saved.parameters, parameter.name, &state::Parameter::name);
        same != saved.parameters.end())
      parameter.arrays = same->arrays;
  checkpoint.load(wanted, [&](auto parameter, auto array, auto offset, auto bytes) {
    const std::size_t taken = averages && has_average(wanted.parameters[parameter]) ? kAverageArray : 0;
    if (array == taken) parameters.write(parameters.shown()[parameter], 0, offset, bytes);
  });
}

}  // namespace

std::string save(Machine &machine, const Counters &counters, Ranks &ranks, const std::string &directory) {
  Parameters &parameters = machine.parameters();
  state::Description description = describe(machine.draft(), parameters);
  description.counters = counters_of(machine.draft(), parameters, counters);
  if (!ranks.several()) return state::save(directory, description, reader_of(parameters));
  return RanksCheckpoint(description, parameters, ranks).save(directory, counters.steps);
}

Counters resume(Machine &machine) {
  const draft::Settings &settings = machine.draft().settings;
  if (settings.resume.empty()) return {.seed = static_cast<std::uint64_t>(settings.seed.value_or(0))};
  const state::Checkpoint checkpoint = draft::open_checkpoint(settings.resume);
  if (comm::Channel &hosts = *machine.channels().hosts; hosts.ranks() > 1)
    draft::require_same(
        hosts, {{"resume", fmt::format("step {}, sum {}", counter(checkpoint, state::kStep), checkpoint.identity())}});
  const Counters counters{.steps = counter(checkpoint, state::kStep),
                          .skipped = counter(checkpoint, kSkipped),
                          .seed = counter(checkpoint, kSeed),
                          .loss_scale = loss_scale_of(checkpoint)};
  require(counters.skipped <= counters.steps, Code::format, checkpoint.path(), "{} of {} steps were skipped",
          counters.skipped, counters.steps);
  require(counters.loss_scale.applied() <= counters.steps - counters.skipped, Code::format, checkpoint.path(),
          "{} steps at one loss scale, of {} that were not skipped", counters.loss_scale.applied(),
          counters.steps - counters.skipped);
  require(counters.seed >> 63 == 0, Code::format, checkpoint.path(),
          "its seed is {}, beyond the largest a session can have", counters.seed);
  require(!settings.seed || static_cast<std::uint64_t>(*settings.seed) == counters.seed, Code::mismatch, "seed",
          "the seed is {} and that of {} is {}; leave the option out to go on with it", settings.seed.value_or(0),
          checkpoint.path(), counters.seed);
  run::Store::Sweep sweep(machine.store());
  Parameters &parameters = machine.parameters();
  require_base(machine.draft(), parameters, checkpoint);
  if (settings.trains)
    load_into(parameters, machine.draft(), checkpoint);
  else  // averages begin in the first step that is not skipped
    load_weights(parameters, machine.draft(), checkpoint, settings.eval_average && counters.steps > counters.skipped);
  require_scales(machine.draft(), checkpoint);  // after load(), which says more about adapters of other ranks or places
  sweep.finish();
  return counters;
}

}  // namespace protrain::session
