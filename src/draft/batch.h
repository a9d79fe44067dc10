// Batch: which of a model's inputs counts the samples, how many they are, and how many tokens each has. It is told
// apart here alone: by micro-batches, by random numbers, by tokens per second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft/model_inputs.h"

namespace protrain::draft {

struct Batch {
  std::string input;                   // axis 0 counts samples; empty: no input has an axis, and there is one sample
  std::string dim;                     // the symbolic dimension of that axis; empty: its size is fixed
  std::int64_t samples = 1;            // 0: `dim` is not bound
  std::int64_t tokens_per_sample = 0;  // elements of the other axes; 0: not integers, or one of their dims is not bound

  std::int64_t tokens() const { return samples * tokens_per_sample; }
};

// The first input of integers that has an axis, else the first input that has one.
Batch batch_of(const std::vector<ModelInput> &inputs, const onnx_import::DimBindings &dims);

}  // namespace protrain::draft
