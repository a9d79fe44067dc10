// Pictures of a step and of a run, each a whole SVG document that can stand alone or inside a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tool {

using Json = nlohmann::ordered_json;

// Memory over a step, stacked by owner, a panel for each tier in use. `timeline`: as the library's reports have it.
std::string memory_picture(const Json &timeline);
// When each queue was busy. `queues` and `costs` ("measured" or "predicted"): likewise.
std::string queues_picture(const Json &queues, const Json &costs);
// The loss of each step; the first is number `first`.
std::string loss_picture(const std::vector<double> &losses, std::uint64_t first);

}  // namespace tool
