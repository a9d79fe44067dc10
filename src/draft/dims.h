// Finds sizes for symbolic dimensions that no option binds, by trial. A size is called inferred if the shapes of more
// nodes agree with it than with any other size. All other sizes are called assumed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "onnx_import/model.h"

namespace protrain::draft {

struct DimSize {
  enum class By : std::uint8_t { option, inference, assumption };
  std::int64_t value = 0;
  By by = By::assumption;
  std::string reason;  // of an inference: "Conv at /conv1, whose conv1.weight is float32[64, 3, 7, 7]"
};

// Returns all symbolic dims of the model by name, including the dims in `given`. `values` holds the values that inputs
// are bound to.
std::map<std::string, DimSize> settle_dims(const onnx_import::Model &model, const onnx_import::DimBindings &given,
                                           const onnx_import::InputValues &values = {});

}  // namespace protrain::draft
