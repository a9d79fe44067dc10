// Refusal: what to change when nothing fits the budgets.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "draft/draft.h"

namespace protrain::draft {

// Options that together make a plan fit, with their values, such as "memory" and "1234", or "dim" and "batch=2".
struct Change {
  std::vector<std::pair<std::string, std::string>> options;
  std::string text;  // for people: "batch=2 instead of 8"
};
std::vector<Change> changes_that_fit(const Settings &settings, const onnx_import::ModelSource &source,
                                     TargetMachine &machine, const Draft &draft);

// Throws Code::budget. The error's text gives the bytes that the smallest plan needs, and every change with which a
// plan fits.
[[noreturn]] void refuse(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
                         const Draft &draft);

}  // namespace protrain::draft
