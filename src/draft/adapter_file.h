// AdapterFile: low-rank adapters on disk, in one of two forms. Hugging Face's PEFT has a directory with
// adapter_config.json and adapter_model.safetensors. ONNX Runtime has an .onnx_adapter file. An .onnx_adapter file
// holds no alpha, because its matrices B are already multiplied by the scale.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "passes/adapter.h"
#include "state/tensor_file.h"

namespace protrain::draft {

class AdapterFile {
 public:
  // Opens an adapter. Throws Code::io, path, format, limit or version. Throws Code::unsupported if the adapter is no
  // plain LoRA, or holds tensors other than A and B.
  static AdapterFile open(const std::string &path);

  // Returns one request for each module that the file has matrices for.
  const std::vector<passes::AdapterRequest> &requests() const { return requests_; }
  // Makes the file the source of the adapter's start values. Throws Code::shape if the file's matrices have other
  // shapes than the adapter's matrices. Throws Code::mismatch if the file adapts an embedding where the model has a
  // product, or the other way round.
  void give(passes::Adapter &adapter) const;
  // Makes the file the source of the start values of all of a session's adapters, and replaces each adapter's request
  // by the file's. Throws Code::mismatch if the file and the session do not adapt the same modules.
  void give(std::vector<passes::Adapter> &adapters) const;
  // Reads elements of a tensor as float32.
  void read(const std::string &tensor, std::uint64_t first, std::span<float> out) const;

 private:
  explicit AdapterFile(File file) : file_(std::move(file)) {}
  void take(std::vector<state::Tensor> tensors);
  void give(passes::AdapterMatrix &matrix, const std::string &tensor, const passes::Adapter &adapter) const;

  File file_;
  std::map<std::string, state::Tensor> tensors_;  // by name
  std::vector<passes::AdapterRequest> requests_;
};

// Returns the present values of an adapter's matrix, such as those that a session has trained.
using MatrixValues = std::function<std::vector<float>(const passes::AdapterMatrix &matrix)>;

// Writes adapters in PEFT's form into the directory `path`, which is created if only its last component is missing.
// PEFT's PeftModel.from_pretrained and the option `adapter` can read this directory. If `path` ends in .onnx_adapter,
// writes a file for ONNX Runtime instead. The tensors in this file have the names of the exported model's inputs, and
// the types that `type_of` returns.
void write_adapters(const std::string &path, const std::vector<passes::Adapter> &adapters, const MatrixValues &values,
                    const std::function<DType(const passes::Adapter &adapter)> &type_of);

// Reads the file of the option adapter_names. Returns the name of the module for each initializer in the file.
std::map<std::string, std::string> read_module_names(const std::string &path);

}  // namespace protrain::draft
