#include "session/report.h"

#include <map>
#include <nlohmann/json.hpp>

namespace protrain::session {

using Json = nlohmann::ordered_json;

std::string created_json(const backend::DeviceInfo &device, const Blueprint &blueprint) {
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
              {"n_chunk", plan.chunks.size()},
              {"n_persist", plan.n_persist},
              {"n_buffer", plan.n_buffer},
              {"n_swap", plan.n_swap},
              {"n_checkpoint", plan.n_checkpoint},
              {"n_block", plan.blocks.size()}}
      .dump();
}

std::string step_json(std::uint64_t step, const StepResult &result, double seconds) {
  return Json{
      {"event", "step"}, {"step", step}, {"loss", result.loss}, {"grad_norm", result.grad_norm}, {"seconds", seconds}}
      .dump();
}

std::string saved_json(std::uint64_t step, const std::string &path) {
  return Json{{"event", "saved"}, {"step", step}, {"path", path}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string report_json(const run::Report &report, double seconds, const program::Program &program,
                        const graph::Graph &graph) {
  std::map<std::string, std::pair<double, int>> by_operator;  // seconds, launches
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction &instruction = program.instructions[i];
    const std::string name = instruction.kind == program::Kind::run
                                 ? graph.node(instruction.node).op
                                 : program::kKindNames[static_cast<std::size_t>(instruction.kind)];
    by_operator[name].first += static_cast<double>(report.instruction_ns[i]) * 1e-9;
    by_operator[name].second += 1;
  }
  Json json = {{"seconds", seconds},
               {"device_peak_bytes", report.peak_bytes[0]},
               {"host_peak_bytes", report.peak_bytes[1]},
               {"disk_bytes", report.peak_bytes[2]},
               {"state_bytes", program.state_bytes},
               {"instructions", program.instructions.size()}};
  for (const auto &[name, cost] : by_operator)
    json["operators"][name] = {{"seconds", cost.first}, {"launches", cost.second}};
  return json.dump(1);
}

}  // namespace protrain::session
