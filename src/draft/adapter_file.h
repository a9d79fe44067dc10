// AdapterFile: low-rank adapters in the form of Hugging Face's PEFT, a directory with adapter_config.json and
// adapter_model.safetensors, or of ONNX Runtime, an .onnx_adapter file. The latter knows no alpha: the matrices B have
// the scale in them.
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
  // Code::io, path, format, limit; unsupported for kinds of adapters and tensors other than LoRA's A and B.
  static AdapterFile open(const std::string &path);

  // One for each module that the file has matrices for.
  const std::vector<passes::AdapterRequest> &requests() const { return requests_; }
  // Makes the file the source of the adapter's start values. Code::shape if the shapes differ, mismatch if one of them
  // is an embedding's.
  void give(passes::Adapter &adapter) const;
  // The same for all adapters of a session that has them already, whose requests become the file's. Code::mismatch if
  // the file has adapters of other modules.
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

// The values of an adapter's matrix, such as a session has.
using MatrixValues = std::function<std::vector<float>(const passes::AdapterMatrix &matrix)>;

// Writes adapters into the directory `path`, which is created if only its last component is missing. PEFT's
// PeftModel.from_pretrained and the option adapter read them. If `path` ends in .onnx_adapter, writes such a file, with
// the names that the inputs of an exported model have; `type_of` returns the type of an adapter's inputs.
void write_adapters(const std::string &path, const std::vector<passes::Adapter> &adapters, const MatrixValues &values,
                    const std::function<DType(const passes::Adapter &adapter)> &type_of);

// Reads the file of the option adapter_names. Returns modules by initializer.
std::map<std::string, std::string> read_module_names(const std::string &path);

}  // namespace protrain::draft
