// Pictures of a step and of a run. Each is a whole SVG document that can stand alone or inside a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tool {

using Json = nlohmann::ordered_json;

// Shows memory over a step by owner, with a plot for each tier in use. `timeline` is as in the library's reports.
std::string memory_picture(const Json &timeline);
// Shows when each queue was busy. `queues` and `costs` ("measured" or "predicted") are as in the library's reports.
std::string queues_picture(const Json &queues, const Json &costs);
// A number that belongs to a step.
struct StepValue {
  std::uint64_t step;
  double value;
};
// Curves over the steps in one plot, each with its name and a colour of its own. Values that are not finite are left
// out.
struct Curve {
  std::string name;
  std::vector<StepValue> values;
};
std::string curves_picture(const std::string &title, const std::vector<Curve> &curves);

}  // namespace tool
