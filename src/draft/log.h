// Log: receives lines of JSON about what a long call does.
#pragma once

#include <functional>
#include <string>

namespace protrain::draft {

using Log = std::function<void(const std::string &json_line)>;

}  // namespace protrain::draft
