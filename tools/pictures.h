// Pictures of a step and of a run. Each is a whole SVG document that can stand alone or inside a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tool {

using Json = nlohmann::ordered_json;

// Memory over a step, stacked by owner, one panel per tier in use. `timeline` is as in the library's reports.
std::string memory_picture(const Json &timeline);
// Shows when each queue was busy. `queues` and `costs` ("measured" or "predicted") are as in the library's reports.
std::string queues_picture(const Json &queues, const Json &costs);
// The loss of each step; the first is number `first`.
std::string loss_picture(const std::vector<double> &losses, std::uint64_t first);

}  // namespace tool
