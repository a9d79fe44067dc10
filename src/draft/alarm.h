// Alarm: a sign that training goes wrong although no call fails. Each alarm is reported once.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace protrain::draft {

struct Alarm {
  std::string code;      // "no_gradient"; docs/training.md lists all codes
  std::string subject;   // the name of a parameter, an input or a node; "" if it is about the whole run
  std::string sentence;  // what was found, and what to do
  bool operator==(const Alarm &) const = default;
};

// Returns a text that lists the names: "a", "a and b", or "a, b, c and 4 more".
std::string some_names(const std::vector<std::string> &names);

Json alarms_json(const std::vector<Alarm> &alarms);

}  // namespace protrain::draft
