#include "draft/plan_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "draft/binding.h"
#include "draft/costs_json.h"
#include "draft/estimate.h"
#include "draft/explain.h"
#include "draft/refusal.h"

namespace protrain::draft {

namespace {

// Returns the integers that describe a plan. `choice` is the choice that the plan was expanded from, or nullptr for a
// plan from a file, which has no single chunk size.
Json integers_json(const plan::Plan &plan, const plan::Choice *choice) {
  const auto on_host =
      std::ranges::count_if(plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier == Tier::host; });
  const auto on_device = std::ranges::count_if(
      plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier != Tier::device && chunk.update == Tier::device; });
  const auto deferred = std::ranges::count_if(
      plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier != Tier::device && chunk.deferred; });
  const auto whole = std::ranges::count_if(
      plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier == Tier::device && !chunk.sharded; });
  return {{"n_chunk", plan.chunks.size()},
          {"n_persist", plan.n_persist},
          {"n_whole", whole},
          {"n_buffer", plan.n_buffer},
          {"n_host", on_host},
          {"n_device_update", on_device},
          {"n_deferred", deferred},
          {"n_block", plan.blocks.size()},
          {"n_swap", plan.n_swap},
          {"n_checkpoint", plan.n_checkpoint},
          {"n_selective", plan.n_selective},
          {"slack", plan.slack},
          {"chunk_bytes", choice != nullptr ? Json(choice->chunk_bytes) : Json()},
          {"optimizer_order", plan::kOrderNames[static_cast<int>(plan.order)]}};
}

Json point_json(const plan::Point &point, const graph::Graph &graph) {
  Json json = integers_json(plan::expand(graph, point.choice), &point.choice);
  json["step_seconds"] = point.cost.seconds;
  json["device_peak_bytes"] = point.cost.bytes[Tier::device];
  json["host_peak_bytes"] = point.cost.bytes[Tier::host];
  json["disk_bytes"] = point.cost.bytes[Tier::disk];
  return json;
}

// Plans again with 1.5 and 0.75 times the device's budget. For a machine that is only described, also plans with twice
// the batch. For the machine at hand a larger batch would take longer to plan, because its kernels would have to be
// measured first. Leaves out a change that the model or another option does not allow.
std::vector<Alternative> alternatives(const Settings &settings, const onnx_import::ModelSource &source,
                                      TargetMachine &machine, const Draft &draft) {
  std::vector<Alternative> found;
  constexpr std::uint64_t kMost = 1ull << 62;
  const std::uint64_t first = draft.budget.bytes[Tier::device];
  if (!settings.plan.empty() || !draft.decision.found.best || first > kMost) return found;
  ProfiledMachine profiled(machine, draft.profile);
  const auto add = [&](const std::string &change, const Settings &other) {
    try {
      const Draft changed = estimate(other, source, profiled, Goal::best);
      const auto &best = changed.decision.found.best;
      found.push_back({change, best ? best->cost.seconds : 0, changed.samples()});
    } catch (const Error &error) {
      if (error.code == Code::nomem) throw;
    }
  };
  const bool shared = draft.budget.shared_memory;
  for (const double factor : {1.5, 0.75}) {
    if (draft.decision.found.all_fits && factor > 1) continue;  // nothing would change
    Settings other = settings;
    const auto bytes = static_cast<std::uint64_t>(static_cast<double>(first) * factor);
    if (bytes > draft.profile.device_memory) continue;  // a budget is at most what the machine has
    (shared ? other.memory : other.device_memory) = bytes;
    add(fmt::format("{}={} (x {})", shared ? "memory" : "device_memory", bytes_text(bytes), factor), other);
  }
  const auto batch = settings.dims.find(draft.first().batch.dim);
  if (batch == settings.dims.end() || settings.hardware.empty()) return found;
  const Binding twice{batch->first, 2 * batch->second};
  Settings other = settings;
  other.dims[twice.name] = twice.size;
  add(fmt::format("{} (instead of {})", twice.text(), batch->second), other);
  return found;
}

// Returns an array with one object for each change. An object holds the options to set, and a text about the change.
Json changes_json(const std::vector<Change> &changes) {
  Json json = Json::array();
  for (const Change &change : changes) {
    Json together = Json::object();
    for (const auto &[key, value] : change.options) together[key] = value;
    json.push_back({{"options", together}, {"text", change.text}});
  }
  return json;
}

// Returns the plan's integers, the time and memory that it needs, and the budgets.
Json figures_json(const std::string &model, const Draft &draft) {
  const plan::SearchResult &found = draft.decision.found;
  const plan::Choice *choice = nullptr;
  if (draft.decision.smallest) choice = &draft.decision.smallest->point.choice;
  if (found.best) choice = &found.best->choice;
  const double seconds = draft.simulations[0].seconds(draft.accumulation);
  Json json = {{"model", model},
               {"hardware", draft.profile.name},
               {"precision", precision_name(draft.settings.precision)},
               {"feasible", draft.fits()}};
  const Json integers = integers_json(draft.decision.plan, choice);
  for (const auto &[key, value] : *integers.members()) json.append(key, value);
  json["step_seconds"] = seconds;
  json["samples_per_second"] = draft.samples() / seconds;
  json["tokens_per_second"] = draft.tokens() / seconds;
  const plan::Bytes needed = draft.needed();
  json["device_peak_bytes"] = needed[Tier::device];
  json["host_peak_bytes"] = needed[Tier::host];
  json["disk_bytes"] = needed[Tier::disk];
  json["search_seconds"] = draft.decision.search_seconds;
  json["budget"] = {{draft.budget.shared_memory ? "memory" : "device_memory", draft.budget.bytes[Tier::device]},
                    {"host_memory", draft.budget.bytes[Tier::host]},
                    {"disk_memory", draft.budget.bytes[Tier::disk]}};
  json["accumulation"] = draft.accumulation;
  if (draft.micro_batch > 0) json["micro_batch"] = draft.micro_batch;
  json["points_ranked"] = found.ranked;
  json["points_laid_out"] = found.laid_out;
  return json;
}

}  // namespace

std::string profile_model(const Options &options, const std::string &path, const Log &progress) {
  Settings settings = settings_of(options);
  require(settings.hardware.empty(), Code::arg, "hardware", "only this machine can be measured");
  NamedMachine machine(settings, progress, Earlier::ignored);
  take_declared(settings, options, onnx_import::Model::open(path)->declared());
  const Draft draft = estimate(settings, path, *machine);
  profile::Profile profile = draft.profile;
  profile.scratch = machine.scratch();
  profile.disk_memory = draft.budget.bytes[Tier::disk];
  return profile::to_json(profile);
}

std::string plan_model(const Options &options, const std::string &path, const Log &progress) {
  Settings settings = settings_of(options);
  NamedMachine machine(settings, progress);
  take_declared(settings, options, onnx_import::Model::open(path)->declared());
  const Draft draft = estimate(settings, path, *machine);
  const plan::SearchResult &found = draft.decision.found;
  const graph::Graph &graph = draft.first().training.graph;
  const program::Program &step = draft.programs.variants[0].step;
  const program::Simulation &predicted = draft.simulations[0].step;
  Json json = figures_json(path, draft);
  json["predicted"] = costs_json(step, predicted, program::queues_of(draft.profile).beside);
  if (found.next) json["next"] = point_json(*found.next, graph);
  if (found.resident) json["resident"] = point_json(*found.resident, graph);
  json["would_fit"] = Json::array();
  if (!draft.fits()) json["would_fit"] = changes_json(changes_that_fit(settings, path, *machine, draft));
  json["explanation"] = explain(draft, alternatives(settings, path, *machine, draft));
  json["timeline"] = timeline_json(step, program::spans_of(predicted));
  json["queues"] = queues_json(step, program::spans_of(predicted));
  if (settings.traces) json["traceEvents"] = trace_events_json(step, graph, program::spans_of(predicted));
  json["plan"] = plan::as_json(draft.decision.plan);
  return json.dump(1);
}

}  // namespace protrain::draft
