// The numbers that adapters start with in the sessions of make_adapters.py and make_rounded.py.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "session/session.h"

namespace protrain::test {

// Returns the same numbers as start_of() in make_adapters.py.
inline std::vector<float> start_of(std::int64_t number, const Shape &shape) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    const auto step = static_cast<double>((i * 7919 + 104729 * number + 12345) % 10007);
    values.push_back(static_cast<float>((step / 10007 - 0.5) * 2 / std::sqrt(static_cast<double>(shape[1]))));
  }
  return values;
}

inline void start_like_peft(session::Session &session) {
  std::map<std::string, Shape> started;
  for (std::size_t p = 0; p < session.parameter_count(); ++p)
    if (const std::string &name = session.parameter_name(p);
        name.find("lora_A") != std::string::npos || name.find("lora_embedding_B") != std::string::npos)
      started[name] = session.parameter_shape(p);
  std::int64_t number = 0;
  for (const auto &[name, shape] : started) {
    const std::vector<float> values = start_of(number++, shape);
    session.write_parameter(name, values.data(), values.size());
  }
}

}  // namespace protrain::test
