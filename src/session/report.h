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
std::string step_json(std::uint64_t step, const StepResult &result, double seconds);
std::string saved_json(std::uint64_t step, const std::string &path);
// `seconds` of the step; times by operator, peaks and counts of the Program that ran last.
std::string report_json(const run::Report &report, double seconds, const program::Program &program,
                        const graph::Graph &graph);

}  // namespace protrain::session
