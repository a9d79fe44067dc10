#include "session/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "program/timeline.h"

namespace protrain::session {

namespace {

constexpr std::size_t kPoints = 400;    // of a timeline, at most
constexpr std::int64_t kPixels = 1000;  // of a picture's width; gaps between bars that are narrower are not told

double to_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

Json operators_json(const run::Report &report, const program::Program &program, const graph::Graph &graph) {
  std::map<std::string, std::pair<std::int64_t, int>> by_operator;  // nanoseconds, launches
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction &instruction = program.instructions[i];
    const std::string name = instruction.kind == program::Kind::run
                                 ? graph.node(instruction.node).op
                                 : program::kKindNames[static_cast<std::size_t>(instruction.kind)];
    by_operator[name].first += report.timed.spans[i].end_ns - report.timed.spans[i].start_ns;
    by_operator[name].second += 1;
  }
  Json json = Json::object();
  for (const auto &[name, cost] : by_operator)
    json[name] = {{"seconds", to_seconds(cost.first)}, {"launches", cost.second}};
  return json;
}

Json warnings_json(const backend::DeviceInfo &device, std::uint64_t unpinned_bytes) {
  Json warnings = Json::array();
  if (unpinned_bytes > 0)
    warnings.push_back(fmt::format(
        "the system refused to pin {} of host memory: copies between it and {} are several times slower and stop what "
        "runs beside them; raise the limit on locked memory (ulimit -l) to {} bytes at least",
        bytes_text(unpinned_bytes), device.name, unpinned_bytes));
  return warnings;
}

Json memory_json(const MemoryAround &memory) {
  return {{"device_free_before_bytes", memory.device_free_before},
          {"device_free_bytes", memory.device_free},
          {"pinned_bytes", memory.pinned},
          {"unpinned_bytes", memory.unpinned}};
}

// At most so many names, for a line that people read.
std::vector<std::string> some_of(const std::vector<std::string> &names) {
  constexpr std::size_t kMostNamed = 20;
  return {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kMostNamed, names.size()))};
}

// Initializers that may not be what they were taken for, and what to do.
Json doubtful_json(const Blueprint &blueprint) {
  if (blueprint.doubts.empty() && blueprint.unmatched.empty()) return Json::object();
  return {{"count", blueprint.doubts.size()},
          {"names", some_of(blueprint.doubts)},
          {"unmatched", some_of(blueprint.unmatched)},
          {"text",
           "whether these are parameters could not be told for certain; protrain check says why, and what settles it: "
           "the options trainable, frozen and parameters_from, or of a Constant another export of the file"}};
}

}  // namespace

std::string created_json(const backend::DeviceInfo &device, const Blueprint &blueprint, const MemoryAround &memory) {
  const plan::Plan &plan = blueprint.chosen.plan;
  return Json{{"event", "created"},
              {"device", device.name},
              {"description", device.description},
              {"threads", device.threads},
              {"instructions", blueprint.draft.programs[0].step.instructions.size()},
              {"device_peak_bytes", blueprint.draft.bytes[0]},
              {"host_peak_bytes", blueprint.draft.bytes[1]},
              {"disk_bytes", blueprint.draft.bytes[2]},
              {"accumulation", blueprint.accumulation},
              {"micro_batch", blueprint.micro_batch},
              {"loss_from", blueprint.loss_from},
              {"predicted_seconds", blueprint.predicted[0].seconds(blueprint.accumulation)},
              {"n_chunk", plan.chunks.size()},
              {"n_persist", plan.n_persist},
              {"n_buffer", plan.n_buffer},
              {"n_swap", plan.n_swap},
              {"n_checkpoint", plan.n_checkpoint},
              {"n_selective", plan.n_selective},
              {"n_block", plan.blocks.size()},
              {"memory", memory_json(memory)},
              {"warnings", warnings_json(device, memory.unpinned)},
              {"doubtful", doubtful_json(blueprint)}}
      .dump();
}

std::string warning_json(const std::string &text) { return Json{{"event", "warning"}, {"text", text}}.dump(); }

std::string step_json(std::uint64_t step, const StepResult &result, double seconds, std::uint64_t loss_scale) {
  Json json = {
      {"event", "step"}, {"step", step}, {"loss", result.loss}, {"grad_norm", result.grad_norm}, {"seconds", seconds}};
  if (loss_scale > 0) json["loss_scale"] = loss_scale;
  return json.dump();
}

std::string saved_json(std::uint64_t step, const std::string &path) {
  return Json{{"event", "saved"}, {"step", step}, {"path", path}}.dump();
}

Json costs_json(const program::Summary &summary, const std::array<std::uint64_t, kTierCount> &peak_bytes) {
  Json json = {{"seconds", to_seconds(summary.step_ns)},
               {"device_peak_bytes", peak_bytes[0]},
               {"host_peak_bytes", peak_bytes[1]},
               {"disk_bytes", peak_bytes[2]},
               {"overlap", summary.overlap}};
  for (std::size_t q = 0; q < kQueueCount; ++q) json["busy_seconds"][kQueueNames[q]] = to_seconds(summary.busy_ns[q]);
  for (std::size_t s = program::kFirstStall; s < program::kStallCount; ++s)
    json["stall_seconds"][program::name_of_stall(s)] = to_seconds(summary.stall_ns[s]);
  return json;
}

Json costs_json(const program::Program &program, const program::Simulation &simulation, const program::Beside &beside) {
  const std::vector<program::Span> spans = spans_of(simulation);
  return costs_json(summarize(program, spans, beside, simulation.step_ns),
                    simulation.entries.empty() ? program.state_bytes : simulation.entries.back().high_bytes);
}

Json timeline_json(const program::Program &program, const std::vector<program::Span> &spans) {
  Json json = {{"owners", program::kOwnerNames}};
  const program::Timeline timeline = program::timeline(program, spans, kPoints);
  for (std::size_t t = 0; t < kTierCount; ++t) {
    Json &points = json[kTierNames[t]] = Json::array();
    for (const program::Point &point : timeline[t]) {
      Json &row = points.push_back(Json::array({to_seconds(point.at_ns)}));
      for (std::uint64_t bytes : point.bytes) row.push_back(bytes);
    }
  }
  return json;
}

Json queues_json(const program::Program &program, const std::vector<program::Span> &spans) {
  std::int64_t end_ns = 0;
  for (const program::Span &span : spans) end_ns = std::max(end_ns, span.end_ns);
  Json json;
  for (std::size_t q = 0; q < kQueueCount; ++q) {
    Json &bars = json[kQueueNames[q]] = Json::array();
    for (const program::Span &span : busy_spans(program, spans, static_cast<Queue>(q), end_ns / kPixels))
      bars.push_back(Json::array({to_seconds(span.start_ns), to_seconds(span.end_ns)}));
  }
  return json;
}

std::string report_json(const run::Report &report, double seconds, const MemoryAround &memory,
                        const program::Program &program, const graph::Graph &graph,
                        const program::Simulation *prediction) {
  const run::Report::Timed &timed = report.timed;
  const auto step_ns = static_cast<std::int64_t>(timed.seconds * 1e9);
  Json json = {{"seconds", seconds},
               {"device_peak_bytes", report.peak_bytes[0]},
               {"host_peak_bytes", report.peak_bytes[1]},
               {"disk_bytes", report.peak_bytes[2]},
               {"state_bytes", program.state_bytes},
               {"instructions", program.instructions.size()},
               {"replayed", report.replayed},
               {"not_recorded", report.not_recorded},
               {"memory", memory_json(memory)},
               {"timed_step", timed.step},
               {"measured", costs_json(summarize(program, timed.spans, report.beside, step_ns), report.peak_bytes)}};
  if (prediction != nullptr) json["predicted"] = costs_json(program, *prediction, report.beside);
  json["operators"] = operators_json(report, program, graph);
  json["timeline"] = timeline_json(program, timed.spans);
  json["queues"] = queues_json(program, timed.spans);
  return json.dump(1);
}

}  // namespace protrain::session
