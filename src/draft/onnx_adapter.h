// ONNX Runtime's files of adapters (.onnx_adapter): named tensors in a FlatBuffer. ONNX Runtime's RunOptions take such
// a file, and its tensors become inputs of a model that was exported with export_adapters=inputs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/files.h"
#include "state/tensor_file.h"

namespace protrain::draft {

// True if the path ends in .onnx_adapter.
bool is_onnx_adapter(const std::string &path);

// Returns the tensors of a file. Their positions count from the beginning of the file. Throws Code::format, Code::limit
// or Code::version. Throws Code::unsupported for element types other than float32, float64, float16 and bfloat16.
std::vector<state::Tensor> tensors_of_onnx_adapter(const File &file);

// Writes a file with these tensors, and ignores their positions. `values` returns the bytes of the tensor with the
// given index.
void write_onnx_adapter(const std::string &path, const std::vector<state::Tensor> &tensors,
                        const std::function<std::vector<std::byte>(std::size_t tensor)> &values);

}  // namespace protrain::draft
