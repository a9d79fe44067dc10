// Tensors: what a TensorProto says, checked, and its values wherever they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "graph/array.h"
#include "onnx_import/external.h"
#include "onnx_import/model.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

inline constexpr int kMaxRank = 64;

struct Tensor {
  std::string subject;  // for errors: its name, or the node it belongs to
  graph::Type type;
  std::uint64_t bytes = 0;
  std::optional<ExternalData> external;
  const TensorProto *proto = nullptr;  // lent: holds small values, or tells where large ones lie in the model file
};

// DType::none for an ONNX element type that this library does not know; `subject` with Code::type.
DType dtype_of(std::int32_t onnx, const std::string &subject);
std::string_view onnx_type_name(std::int32_t onnx);  // "float8e4m3fn"; "unknown" where there is none

// Checks everything that can be told without reading large data: Code::type, shape, limit, format, path.
Tensor parse_tensor(const TensorProto &proto, const std::string &subject);

// Code::limit where constants of so many bytes would take more than half of the memory that is left.
void require_room(std::uint64_t bytes, const std::string &subject);

// The model file and what lies beside it.
class Storage {
 public:
  explicit Storage(const Source &source);

  const File &model() const { return model_; }
  // Where external data are looked for; after that, where their links may lead too. Empty: there can be none.
  const std::vector<std::string> &roots() const { return roots_; }
  // The tensor's bytes, type.dtype, row-major; tensor.bytes of them. Code::format, shape, path, io.
  void read(const Tensor &tensor, std::byte *out) const;
  // A part of them, of a tensor of float32 or float64. On any thread.
  void read_floats(const Tensor &tensor, std::uint64_t offset, std::span<std::byte> out) const;
  graph::Array load(const Tensor &tensor) const;  // memory is taken only once the data is known to be there
  // Checks external ranges against files that exist: within the file, and no two of them partly over each other.
  void check_ranges(const std::map<std::string, Tensor> &tensors) const;

 private:
  File open_data(const Tensor &tensor) const;  // of an external tensor; the range is inside
  std::optional<std::uint64_t> size_of_data(const Tensor &tensor) const;
  void check_range(const Tensor &tensor, std::uint64_t file_bytes) const;
  void copy(const Tensor &tensor, std::byte *out) const;
  void check_sum(const Tensor &tensor, const File &file) const;

  File model_;
  std::vector<std::string> roots_;
  mutable std::mutex summing_;
  mutable std::map<std::string, std::string> sums_;  // of the files that were read for it, by location
  mutable std::uint64_t external_bytes_ = 0;         // of all tensors
};

}  // namespace protrain::onnx_import
