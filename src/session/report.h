// The JSON texts a session gives away.
#pragma once

#include <string>

#include "backend/backend.h"
#include "program/program.h"
#include "run/executor.h"
#include "session/blueprint.h"
#include "session/session.h"

namespace protrain::session {

std::string created_json(const backend::DeviceInfo &device, const Blueprint &blueprint);
std::string step_json(std::uint64_t step, const StepResult &result, const run::Report &report);
std::string saved_json(std::uint64_t step, const std::string &path);
// Times by operator, peaks, counts.
std::string report_json(const run::Report &report, const program::Program &program, const graph::Graph &graph);

}  // namespace protrain::session
