// Loads initializers for passes that can do without their values.
#pragma once

#include <string>

#include "base/error.h"
#include "passes/passes.h"

namespace protrain::passes {

// Returns the values of an initializer. Returns an array of DType::none if the file comes without its weights, because
// planning needs none.
inline graph::Array load_if_there(const LoadInitializer &load, const std::string &name) {
  try {
    return load(name);
  } catch (const Error &error) {
    if (error.code != Code::io) throw;
    return {};
  }
}

}  // namespace protrain::passes
