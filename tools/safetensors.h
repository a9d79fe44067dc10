// Hugging Face's safetensors format: the length of a JSON object, the object with type, shape and place of each tensor,
// and the tensors' bytes.
#pragma once

#include <string>
#include <vector>

#include "array_layout.h"
#include "input_file.h"

namespace tool {

// The two functions below throw Failure unless the file has a safetensors header.
std::vector<std::string> safetensors_names(const InputFile &file);
// Throws Failure if the file has no such tensor, if the tensor has too many or too few bytes for its shape, or if the
// bytes lie outside of the file.
ArrayLayout safetensors_layout(const InputFile &file, const std::string &tensor);

}  // namespace tool
