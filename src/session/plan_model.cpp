// protrain plan: what a step would be on a machine that need not be here.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "program/summary.h"
#include "session/explain.h"
#include "session/refusal.h"
#include "session/report.h"
#include "session/session.h"

namespace protrain::session {

namespace {

// The machine to plan for, with a device behind it where it is this one.
class PlanSite {
 public:
  PlanSite(const Options &options, const Log &progress, bool anew = false) {
    require_tf32(options);
    if (options.is_set("hardware")) {
      const profile::Profile machine = described_machine(options.text("hardware"));
      require(!options.is_set("disk_memory") || (machine.disk_read > 0 && machine.disk_write > 0), Code::arg,
              "disk_memory", "the description of {} has no disk_read and disk_write", machine.name);
      site_ = std::make_unique<PaperSite>(machine);
      return;
    }
    device_ = open_device(options);
    kernels_ = std::make_unique<run::Kernels>(*device_);
    site_ = std::make_unique<LiveSite>(*device_, *kernels_, options, progress, anew);
  }
  Site &operator*() { return *site_; }
  std::map<std::string, std::uint64_t> scratch() const { return kernels_->scratch(); }  // of a device at hand

 private:
  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<run::Kernels> kernels_;
  std::unique_ptr<Site> site_;
};

// `choice`: what the plan was expanded from; nullptr: it was read from a file, and has no one size of chunks.
Json integers_json(const plan::Plan &plan, const plan::Choice *choice) {
  const auto on_host =
      std::ranges::count_if(plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier == Tier::host; });
  const auto on_device = std::ranges::count_if(
      plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier != Tier::device && chunk.update == Tier::device; });
  const auto deferred = std::ranges::count_if(
      plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier != Tier::device && chunk.deferred; });
  return {{"n_chunk", plan.chunks.size()},
          {"n_persist", plan.n_persist},
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
  json["step_seconds"] = point.laid_out.seconds;
  json["device_peak_bytes"] = point.laid_out.bytes[0];
  json["host_peak_bytes"] = point.laid_out.bytes[1];
  json["disk_bytes"] = point.laid_out.bytes[2];
  return json;
}

double tokens_of(const Blueprint &blueprint) {
  const graph::Graph &graph = blueprint.first().forward;
  for (graph::ValueId id : graph.inputs)
    if (is_integer(graph.value(id).type.dtype))
      return static_cast<double>(element_count(graph.value(id).type.shape)) *
             static_cast<double>(blueprint.accumulation);
  return 0;
}

// The dimension that is the batch: the first of the first input of integers; "batch=8", or empty.
std::string batch_binding(const Options &options, const Blueprint &blueprint) {
  for (const onnx_import::Input &input : blueprint.file->inputs()) {
    if (!is_integer(input.dtype) || input.dims.empty()) continue;
    const auto *name = std::get_if<std::string>(&input.dims[0]);
    for (const std::string &binding : options.list("dim"))
      if (name != nullptr && binding.starts_with(*name + "=")) return binding;
    break;
  }
  return "";
}

// What half as much again, and a quarter less, of the first budget would give; and twice the batch, on paper: here its
// kernels would have to be measured.
std::vector<Alternative> alternatives(const Options &options, const onnx_import::Source &source, Site &site,
                                      const Blueprint &blueprint) {
  std::vector<Alternative> found;
  constexpr std::uint64_t kMost = 1ull << 62;
  if (options.is_set("plan") || !blueprint.chosen.found.best || blueprint.budget.bytes[0] > kMost) return found;
  const auto add = [&](const std::string &change, const Options &other) {
    const Blueprint drawn = sketch_again(other, source, site, blueprint.profile);
    const auto &best = drawn.chosen.found.best;
    found.push_back({change, best ? best->laid_out.seconds : 0, tokens_of(drawn)});
  };
  const char *key = blueprint.budget.shared_memory ? "memory" : "device_memory";
  for (const double factor : {1.5, 0.75}) {
    if (blueprint.chosen.found.all_fits && factor > 1) continue;  // nothing would change
    Options other = options;
    const auto bytes = static_cast<std::uint64_t>(static_cast<double>(blueprint.budget.bytes[0]) * factor);
    other.set(key, std::to_string(bytes));
    add(fmt::format("{}={} (x {})", key, bytes_text(bytes), factor), other);
  }
  const std::string batch = batch_binding(options, blueprint);
  if (batch.empty() || !options.is_set("hardware")) return found;
  Options other = options;
  other.clear("dim");
  const std::size_t equals = batch.rfind('=');
  const std::string twice =
      fmt::format("{}={}", batch.substr(0, equals), 2 * parse_integer(batch.substr(equals + 1)).value());
  for (const std::string &binding : options.list("dim")) other.set("dim", binding == batch ? twice : binding);
  add(fmt::format("{} (instead of {})", twice, batch.substr(equals + 1)), other);
  return found;
}

}  // namespace

std::string profile_model(const Options &options, const std::string &path, const Log &progress) {
  require(!options.is_set("hardware"), Code::arg, "hardware", "only this machine can be measured");
  PlanSite site(options, progress, true);
  profile::Profile profile = sketch(options, path, *site).profile;
  profile.scratch = site.scratch();
  return profile::to_json(profile);
}

std::string plan_model(const Options &options, const std::string &path, const Log &progress) {
  PlanSite site(options, progress);
  const Blueprint blueprint = sketch(options, path, *site);
  const plan::Found &found = blueprint.chosen.found;
  const graph::Graph &graph = blueprint.first().training.graph;
  const bool searched = !options.is_set("plan"), feasible = !searched || found.best.has_value();
  const plan::Choice *choice = found.best                  ? &found.best->choice
                               : blueprint.chosen.smallest ? &blueprint.chosen.smallest->point.choice
                                                           : nullptr;
  const double seconds = blueprint.predicted[0].seconds(blueprint.accumulation), tokens = tokens_of(blueprint);
  Json json = {{"model", path}, {"hardware", blueprint.profile.name}, {"precision", options.text("precision")}};
  json["feasible"] = feasible;
  const Json integers = integers_json(blueprint.chosen.plan, choice);
  for (const auto &[key, value] : *integers.members()) json.append(key, value);
  json["step_seconds"] = seconds;
  json["tokens_per_second"] = tokens / seconds;
  json["device_peak_bytes"] = blueprint.draft.bytes[0];
  json["host_peak_bytes"] = blueprint.draft.bytes[1];
  json["disk_bytes"] = blueprint.draft.bytes[2];
  json["search_seconds"] = blueprint.chosen.search_seconds;
  json["budget"] = {{blueprint.budget.shared_memory ? "memory" : "device_memory", blueprint.budget.bytes[0]},
                    {"host_memory", blueprint.budget.bytes[1]},
                    {"disk_memory", blueprint.budget.bytes[2]}};
  json["accumulation"] = blueprint.accumulation;
  if (blueprint.micro_batch > 0) json["micro_batch"] = blueprint.micro_batch;
  json["points_ranked"] = found.ranked;
  json["points_laid_out"] = found.laid_out;
  const program::Program &step = blueprint.draft.programs[0].step;
  const program::Simulation &predicted = blueprint.predicted[0].step;
  json["predicted"] = costs_json(step, predicted, program::queues_of(blueprint.profile).beside);
  if (found.next) json["next"] = point_json(*found.next, graph);
  if (found.resident) json["resident"] = point_json(*found.resident, graph);
  json["would_fit"] = Json::array();
  if (!feasible)
    for (const Change &change : changes_that_fit(options, path, *site, blueprint)) {
      Json together = Json::object();
      for (const auto &[key, value] : change.options) together[key] = value;
      json["would_fit"].push_back({{"options", together}, {"text", change.text}});
    }
  json["explanation"] = explain(blueprint, tokens, alternatives(options, path, *site, blueprint));
  json["timeline"] = timeline_json(step, program::spans_of(predicted));
  json["queues"] = queues_json(step, program::spans_of(predicted));
  json["plan"] = plan::as_json(blueprint.chosen.plan);
  return json.dump(1);
}

}  // namespace protrain::session
