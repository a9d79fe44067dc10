#include "session/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "draft/costs_json.h"
#include "measure/contention.h"

namespace protrain::session {

namespace {

using draft::costs_json;
using draft::queues_json;
using draft::timeline_json;
using draft::to_seconds;

Json operators_json(const run::Report &report, const program::Program &program, const graph::Graph &graph) {
  std::map<std::string, std::pair<std::int64_t, int>> by_operator;  // nanoseconds, launches
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const std::string name = operation_of(program.instructions[i], graph);
    by_operator[name].first += report.timed.spans[i].end_ns - report.timed.spans[i].start_ns;
    by_operator[name].second += 1;
  }
  Json json = Json::object();
  for (const auto &[name, cost] : by_operator)
    json[name] = {{"seconds", to_seconds(cost.first)}, {"launches", cost.second}};
  return json;
}

Json warnings_json(const backend::DeviceInfo &device, const draft::Draft &draft, std::uint64_t unpinned_bytes,
                   const std::string &why_not_nccl) {
  Json warnings = Json::array();
  if (unpinned_bytes > 0)
    warnings.push_back(fmt::format(
        "the system refused to pin {} of host memory: copies between it and {} are several times slower and stop what "
        "runs beside them; raise the limit on locked memory (ulimit -l) to {} bytes at least",
        bytes_text(unpinned_bytes), device.name, unpinned_bytes));
  if (!why_not_nccl.empty())
    warnings.push_back("the ranks' GPUs exchange through the hosts' memory, because NCCL cannot be used: " +
                       why_not_nccl);
  if (draft.settings.plan.empty() && draft.profile.waited > measure::kMostWaited)
    warnings.push_back(fmt::format(
        "other processes used the cores while the parts of a step were measured, and threads waited for {:.0f} % of "
        "that time: the plan may be slower than it needs to be; to measure again, run protrain profile, or start a "
        "session later while the cores are idle",
        100 * draft.profile.waited));
  return warnings;
}

Json memory_json(const MemoryOutsideArena &memory) {
  return {{"device_free_before_bytes", memory.device_free_before},
          {"device_free_bytes", memory.device_free},
          {"pinned_bytes", memory.pinned},
          {"unpinned_bytes", memory.unpinned}};
}

Json to_json(const StepAlarms::Raised &raised) {
  return {{"step", raised.step},
          {"code", raised.alarm.code},
          {"subject", raised.alarm.subject},
          {"text", raised.alarm.sentence}};
}

// Returns the first kMostNamed names, for a line that people read.
std::vector<std::string> some_of(const std::vector<std::string> &names) {
  constexpr std::size_t kMostNamed = 20;
  return {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kMostNamed, names.size()))};
}

// Describes the initializers whose role is uncertain, the declared parameter names that no initializer has
// (`unmatched`), and what to do about both.
Json doubtful_json(const draft::Draft &draft) {
  if (draft.doubts.empty() && draft.unmatched.empty()) return Json::object();
  return {{"count", draft.doubts.size()},
          {"names", some_of(draft.doubts)},
          {"unmatched", some_of(draft.unmatched)},
          {"text",
           "it is not certain whether these are parameters, and no initializer has the unmatched names; protrain check "
           "says why, and what settles it: the options trainable, frozen and parameters_from, or of a Constant another "
           "export of the file"}};
}

}  // namespace

std::string created_json(const backend::DeviceInfo &device, const draft::Draft &draft, const MemoryOutsideArena &memory,
                         const std::string &why_not_nccl) {
  const plan::Plan &plan = draft.decision.plan;
  return Json{{"event", "created"},
              {"device", device.name},
              {"description", device.description},
              {"threads", device.threads},
              {"instructions", draft.programs.variants[0].step.instructions.size()},
              {"device_peak_bytes", draft.programs.bytes[Tier::device]},
              {"host_peak_bytes", draft.programs.bytes[Tier::host]},
              {"disk_bytes", draft.programs.bytes[Tier::disk]},
              {"shared_bytes", draft.settings.base_at_hand},
              {"accumulation", draft.accumulation},
              {"micro_batch", draft.micro_batch},
              {"loss_from", draft.loss_from},
              {"predicted_seconds", draft.simulations[0].seconds(draft.accumulation)},
              {"n_chunk", plan.chunks.size()},
              {"n_persist", plan.n_persist},
              {"n_buffer", plan.n_buffer},
              {"n_swap", plan.n_swap},
              {"n_checkpoint", plan.n_checkpoint},
              {"n_selective", plan.n_selective},
              {"n_block", plan.blocks.size()},
              {"memory", memory_json(memory)},
              {"warnings", warnings_json(device, draft, memory.unpinned, why_not_nccl)},
              {"doubtful", doubtful_json(draft)},
              {"alarms", draft::alarms_json(draft.alarms)}}
      .dump();
}

std::string warning_json(const std::string &text) { return Json{{"event", "warning"}, {"text", text}}.dump(); }

std::string alarm_json(const StepAlarms::Raised &raised) {
  Json json = {{"event", "alarm"}};
  const Json about = to_json(raised);
  for (const auto &[key, value] : *about.members()) json.append(key, value);
  return json.dump();
}

std::string step_json(std::uint64_t step, const StepResult &result, double seconds, std::uint64_t loss_scale,
                      const GroupNorms &norms) {
  Json json = {{"event", "step"},
               {"step", step},
               {"loss", result.loss},
               {"grad_norm", result.grad_norm},
               {"learning_rate", result.learning_rate},
               {"seconds", seconds}};
  if (loss_scale > 0) json["loss_scale"] = loss_scale;
  if (norms.step() == step) json["grad_norms"] = norms.json();
  return json.dump();
}

std::string saved_json(std::uint64_t step, const std::string &path) {
  return Json{{"event", "saved"}, {"step", step}, {"path", path}}.dump();
}

std::string report_json(const run::Report &report, const ReportFacts &facts, const program::Program &program,
                        const graph::Graph &graph, const program::Simulation *simulation) {
  const run::Report::Timed &timed = report.timed;
  const auto step_ns = static_cast<std::int64_t>(timed.seconds * 1e9);
  Json json = {{"seconds", facts.seconds},
               {"learning_rate", facts.learning_rate},
               {"device_peak_bytes", report.peak_bytes[Tier::device]},
               {"host_peak_bytes", report.peak_bytes[Tier::host]},
               {"disk_bytes", report.peak_bytes[Tier::disk]},
               {"state_bytes", program.state_bytes},
               {"instructions", program.instructions.size()},
               {"replayed", report.replayed},
               {"not_recorded", report.not_recorded},
               {"memory", memory_json(facts.memory)},
               {"timed_step", timed.step},
               {"measured", costs_json(summarize(program, timed.spans, report.beside, step_ns), report.peak_bytes)}};
  if (simulation != nullptr) json["predicted"] = costs_json(program, *simulation, report.beside);
  json["grad_norms"] = facts.norms.json();
  json["grad_norms_step"] = facts.norms.step();
  json["alarms"] = Json::array();
  for (const StepAlarms::Raised &raised : facts.alarms) json["alarms"].push_back(to_json(raised));
  json["operators"] = operators_json(report, program, graph);
  json["timeline"] = timeline_json(program, timed.spans);
  json["queues"] = queues_json(program, timed.spans);
  if (facts.traces) json["traceEvents"] = draft::trace_events_json(program, graph, timed.spans);
  return json.dump(1);
}

}  // namespace protrain::session
