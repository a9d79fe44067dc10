// Batch: the input whose first axis counts a model's samples, the number of samples, and the number of tokens in a
// sample. Micro-batches, random numbers and tokens per second all depend on these numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft/model_inputs.h"

namespace protrain::draft {

struct Batch {
  std::string input;         // its axis 0 counts samples; empty: no input has an axis, and there is one sample
  std::string dim;           // the symbolic dimension of that axis; empty: fixed size
  std::int64_t samples = 1;  // 0: `dim` is not bound
  std::int64_t tokens_per_sample = 0;  // elements of the other axes; 0: not integers, or one of their dims is not bound

  std::int64_t tokens() const { return samples * tokens_per_sample; }
};

// Uses the first integer input that has an axis. If there is none, uses the first input of any type that has an axis.
Batch batch_of(const std::vector<ModelInput> &inputs, const onnx_import::DimBindings &dims);

}  // namespace protrain::draft
