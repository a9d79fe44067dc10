// ONNX Runtime's files of adapters (.onnx_adapter): named tensors in a FlatBuffer. Its RunOptions take one, and its
// values become inputs of a model that was exported with export_adapters=inputs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/files.h"
#include "state/tensor_file.h"

namespace protrain::draft {

// True for a name that ends as those files do.
bool is_onnx_adapter(const std::string &path);

// Returns the tensors, with positions that count from the begin of the file. Code::format, limit; unsupported for other
// types than floats.
std::vector<state::Tensor> tensors_of_onnx_adapter(const File &file);

// Writes a file with these tensors, whose positions do not count. `values` returns the bytes of one of them.
void write_onnx_adapter(const std::string &path, const std::vector<state::Tensor> &tensors,
                        const std::function<std::vector<std::byte>(std::size_t tensor)> &values);

}  // namespace protrain::draft
