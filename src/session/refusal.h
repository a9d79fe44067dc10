// Refusal: what to change where nothing fits the budgets.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "session/blueprint.h"

namespace protrain::session {

// A change of options, together, that makes a plan fit: "memory" to "1234", "dim" to "batch=2", "offload_dir" to "DIR".
struct Change {
  std::vector<std::pair<std::string, std::string>> options;
  std::string text;  // for people: "batch=2 instead of 8"
};
std::vector<Change> changes_that_fit(const Options &options, const onnx_import::Source &source, Site &site,
                                     const Blueprint &blueprint);

// A sketch under other options on the machine of an earlier one: nothing is measured again.
Blueprint sketch_again(const Options &options, const onnx_import::Source &source, Site &site,
                       const profile::Profile &profile);

// Code::budget with the smallest that works and all of them.
[[noreturn]] void refuse(const Options &options, const onnx_import::Source &source, Site &site,
                         const Blueprint &blueprint);

}  // namespace protrain::session
