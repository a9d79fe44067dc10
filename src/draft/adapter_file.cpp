#include "draft/adapter_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "draft/onnx_adapter.h"
#include "draft/peft_config.h"
#include "onnx_import/floats.h"

namespace protrain::draft {

namespace {

using passes::Adapter;
using passes::AdapterMatrix;
using passes::AdapterRequest;

constexpr const char *kConfig = "/adapter_config.json", *kModel = "/adapter_model.safetensors";
constexpr const char *kPickled = "/adapter_model.bin";     // the older form of PEFT's matrices
constexpr std::string_view kBefore = "base_model.model.";  // the prefix that PEFT's wrapper modules give to names
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
constexpr std::string_view kEmbeddingA = ".lora_embedding_A", kEmbeddingB = ".lora_embedding_B";

// Returns the name of the module whose matrix A is in the tensor called `tensor`. Returns "" if the tensor holds no
// matrix A.
std::string module_of_a(const std::string &tensor) {
  for (const std::string_view end : {kA, kEmbeddingA})
    if (tensor.starts_with(kBefore) && tensor.ends_with(end) && tensor.size() > kBefore.size() + end.size())
      return tensor.substr(kBefore.size(), tensor.size() - kBefore.size() - end.size());
  return "";
}

std::string tensor_of(const std::string &module, std::string_view end) {
  return std::string(kBefore) + module + std::string(end);
}

// Opens adapter_model.safetensors in a directory of PEFT. Throws Code::unsupported if the directory has the matrices
// only in PEFT's older, pickled form.
File open_matrices(const std::string &directory) {
  std::error_code ignored;
  const bool pickled =
      !std::filesystem::exists(directory + kModel, ignored) && std::filesystem::exists(directory + kPickled, ignored);
  require(!pickled, Code::unsupported, directory + kPickled,
          "is a file of PyTorch's, which is not read; load the adapter with PEFT and save it with "
          "save_pretrained(DIR, safe_serialization=True)");
  return File::open(directory + kModel);
}

}  // namespace

AdapterFile AdapterFile::open(const std::string &path) {
  if (is_onnx_adapter(path)) {
    AdapterFile file(File::open(path));
    std::vector<state::Tensor> tensors = tensors_of_onnx_adapter(file.file_);
    for (state::Tensor &tensor : tensors) tensor.name = std::string(kBefore) + tensor.name;
    file.take(std::move(tensors));
    for (AdapterRequest &request : file.requests_) request.alpha = static_cast<double>(request.rank);
    return file;
  }
  std::error_code ignored;
  require(!std::filesystem::is_regular_file(path, ignored), Code::path, path,
          "is a file; give the directory that holds adapter_config.json and adapter_model.safetensors, or a file of "
          "ONNX Runtime's that ends in .onnx_adapter");
  const PeftConfig config(path + kConfig);
  AdapterFile file(open_matrices(path));
  file.take(state::tensors_of(file.file_));
  for (AdapterRequest &request : file.requests_) config.complete(request);
  return file;
}

// Stores the tensors, and makes a request for each module that has the matrices A and B. Throws if there are other
// tensors.
void AdapterFile::take(std::vector<state::Tensor> tensors) {
  const std::string &path = file_.path();
  const std::size_t count = tensors.size();
  for (state::Tensor &tensor : tensors) tensors_.emplace(tensor.name, std::move(tensor));
  require(count > 0 && tensors_.size() == count, Code::format, path, "has {}",
          count > 0 ? "two tensors of one name" : "no tensors");
  std::set<std::string> used;
  for (const auto &[name, tensor] : tensors_) {
    const std::string module = module_of_a(name);
    if (module.empty()) continue;
    const bool embedding = name.ends_with(kEmbeddingA);
    const auto b = tensors_.find(tensor_of(module, embedding ? kEmbeddingB : kB));
    require(b != tensors_.end(), Code::format, path, "has {} and no B beside it", printable(name));
    const Shape &left = b->second.shape, &right = tensor.shape;
    require(left.size() == 2 && right.size() == 2 && right[0] >= 1 && left[1] == right[0], Code::format, path,
            "A and B of {} are {} and {}, not (rank, in) and (out, rank)", printable(module), to_text(right),
            to_text(left));
    requests_.push_back({.pattern = module, .one_module = true, .rank = right[0]});
    used.insert({name, b->first});
  }
  for (const auto &[name, tensor] : tensors_) {
    require(used.contains(name) || name.find(".lora_") != std::string::npos, Code::unsupported, path,
            "holds {}, which is no matrix of an adapter; give the adapter without modules_to_save", printable(name));
    require(
        used.contains(name), Code::format, path,
        "holds {}, which is neither A nor B of a module; expected {}MODULE{} and {} of each module and nothing else, "
        "as PEFT's save_pretrained writes plain adapters",
        printable(name), kBefore, kA, kB);
  }
}

void AdapterFile::give(Adapter &adapter) const {
  const std::string &module = adapter.request.pattern;
  const bool embedding = tensors_.contains(tensor_of(module, kEmbeddingA));
  require(embedding == adapter.embedding, Code::mismatch, adapter.parameter,
          "the adapter has it as {}, and the model reads it as {}", embedding ? "an embedding" : "a product's operand",
          adapter.embedding ? "an embedding" : "a product's operand");
  give(adapter.a, tensor_of(module, embedding ? kEmbeddingA : kA), adapter);
  give(adapter.b, tensor_of(module, embedding ? kEmbeddingB : kB), adapter);
}

void AdapterFile::give(std::vector<Adapter> &adapters) const {
  std::vector<std::string> modules;
  for (const Adapter &adapter : adapters) modules.push_back(adapter.module);

  std::set<const Adapter *> given;
  for (const AdapterRequest &request : requests_) {
    const std::vector<std::size_t> found = passes::modules_of(modules, request.pattern);
    require(found.size() == 1, Code::mismatch, printable(request.pattern),
            "the file has an adapter of this module, and the session has {}", found.empty() ? "none" : "several");
    Adapter &adapter = adapters[found.front()];
    require(given.insert(&adapter).second, Code::mismatch, printable(request.pattern),
            "the file has an adapter of this module, and the session has one for several of the file's");
    adapter.request = request;
    give(adapter);
  }
  for (const Adapter &adapter : adapters)
    require(given.contains(&adapter), Code::mismatch, adapter.module, "the session adapts it, and the file does not");
}

void AdapterFile::give(AdapterMatrix &matrix, const std::string &tensor, const Adapter &adapter) const {
  const Shape &shape = tensors_.at(tensor).shape;
  require(shape == matrix.shape, Code::shape, adapter.parameter, "{} is {}, and this parameter needs {}",
          printable(tensor), to_text(shape), to_text(matrix.shape));
  matrix.tensor = tensor;
}

void AdapterFile::read(const std::string &tensor, std::uint64_t first, std::span<float> out) const {
  const state::Tensor &found = tensors_.at(tensor);
  const std::uint64_t size = size_of(found.dtype);
  std::vector<std::byte> bytes(out.size() * size);
  file_.read(found.begin + first * size, bytes);
  onnx_import::convert_floats(found.dtype, bytes.data(), static_cast<std::int64_t>(out.size()), DType::f32,
                              std::as_writable_bytes(out).data());
}

namespace {

void write_for_peft(const std::string &directory, const std::vector<Adapter> &adapters, const MatrixValues &values) {
  create_directory(directory);
  std::vector<state::Tensor> tensors;
  std::vector<const AdapterMatrix *> matrices;
  for (const Adapter &adapter : adapters) {
    state::append_tensor(tensors, tensor_of(adapter.name_in_file(), adapter.embedding ? kEmbeddingA : kA),
                         adapter.a.shape);
    state::append_tensor(tensors, tensor_of(adapter.name_in_file(), adapter.embedding ? kEmbeddingB : kB),
                         adapter.b.shape);
    matrices.insert(matrices.end(), {&adapter.a, &adapter.b});
  }
  FileWriter model(directory + kModel), config(directory + kConfig);
  model.write(state::header_of(tensors));
  for (const AdapterMatrix *matrix : matrices) {
    const std::vector<float> floats = values(*matrix);
    model.write(std::as_bytes(std::span(floats)));
  }
  config.write(peft_config_of(adapters));
  model.commit();
  config.commit();
}

void write_for_onnxruntime(const std::string &path, const std::vector<Adapter> &adapters, const MatrixValues &values,
                           const std::function<DType(const Adapter &)> &type_of) {
  std::vector<state::Tensor> tensors;
  for (const Adapter &adapter : adapters)
    for (const AdapterMatrix *matrix : {&adapter.a, &adapter.b})
      tensors.push_back({.name = matrix->name, .shape = matrix->shape, .dtype = type_of(adapter)});
  write_onnx_adapter(path, tensors, [&](std::size_t i) {
    const Adapter &adapter = adapters[i / 2];
    std::vector<float> floats = values(i % 2 == 0 ? adapter.a : adapter.b);
    if (i % 2 == 1)
      for (float &value : floats) value = static_cast<float>(value * adapter.request.scale());
    std::vector<std::byte> bytes(byte_count(tensors[i].dtype, tensors[i].shape));
    onnx_import::convert_floats(DType::f32, std::as_bytes(std::span(floats)).data(),
                                static_cast<std::int64_t>(floats.size()), tensors[i].dtype, bytes.data());
    return bytes;
  });
}

}  // namespace

void write_adapters(const std::string &path, const std::vector<Adapter> &adapters, const MatrixValues &values,
                    const std::function<DType(const Adapter &)> &type_of) {
  if (is_onnx_adapter(path)) return write_for_onnxruntime(path, adapters, values, type_of);
  write_for_peft(path, adapters, values);
}

std::map<std::string, std::string> read_module_names(const std::string &path) {
  std::map<std::string, std::string> modules;
  std::set<std::string> met;
  std::size_t number = 0;
  for (std::string line : split(read_text(path), '\n')) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    const std::size_t space = line.rfind(' ');
    require(space != std::string::npos && space > 0, Code::format, path, "line {} is no INITIALIZER MODULE", number);
    const std::string module = line.substr(space + 1);
    std::string initializer = line.substr(0, space);
    while (initializer.ends_with(' ')) initializer.pop_back();
    require(met.insert(module).second && modules.emplace(initializer, module).second, Code::format, path,
            "line {} names an initializer or a module for the second time", number);
  }
  return modules;
}

}  // namespace protrain::draft
