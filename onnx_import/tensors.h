// Tensors: the checked contents of TensorProtos. Storage: their values, in the model file or in external files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
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
  std::string subject;  // for errors: the tensor's name, or the name of its node
  graph::Type type;
  std::uint64_t bytes = 0;
  bool four_bits = false;  // int4 or uint4, two elements in a byte; `type` is int8 or uint8
  std::optional<ExternalData> external;
  const TensorProto *proto = nullptr;  // not owned: holds small values, or the position of large ones in the model file
};

// Throws Code::type, with `subject`, for an ONNX element type that this library does not support.
DType dtype_of(std::int32_t onnx, const std::string &subject);
// Like dtype_of(), for tensors that a file holds. Their type may also be int4 or uint4. For these, returns int8 or
// uint8, because their elements are widened when they are loaded.
DType stored_dtype_of(std::int32_t onnx, const std::string &subject);
bool has_four_bits(std::int32_t onnx);
std::string_view onnx_type_name(std::int32_t onnx);  // "float8e4m3fn"; "unknown" for unknown numbers

// Checks all that can be checked without reading large data. Throws Code::type, shape, limit, format, path.
Tensor parse_tensor(const TensorProto &proto, const std::string &subject);

// Throws Code::limit if `bytes` of constants exceed both 64 MiB and half of the memory that is left.
void require_room(std::uint64_t bytes, const std::string &subject);

// The model file and its external data. Every function that reads throws Code::mismatch if a file was changed or
// replaced after this object first read it.
class Storage {
 public:
  explicit Storage(const ModelSource &source);

  const File &model() const { return model_; }
  // Directories for external data. Files are looked up in the first one, and may be links into any of them. If there
  // are none, external data is not allowed.
  const std::vector<std::string> &roots() const { return roots_; }
  // Returns the paths of the files that the tensors of a graph, and of the bodies in it, name as their external data.
  // The files may be missing.
  std::set<std::string> external_files(const GraphProto &graph) const;
  // Reads all bytes of the tensor's values, row-major. Throws Code::format, shape, path, io, limit, corrupt.
  void read(const Tensor &tensor, std::byte *out) const;
  // Reads a part of a tensor's bytes. Any thread may call it. If the file holds the elements as wider integers, each
  // call reads the whole tensor.
  void read_part(const Tensor &tensor, std::uint64_t offset, std::span<std::byte> out) const;
  graph::Array load(const Tensor &tensor) const;  // takes memory only once the data is known to exist
  // The bytes of a tensor of four-bit elements, as a vector of uint8.
  graph::Array load_packed(const Tensor &tensor) const;
  // Checks external ranges against existing files: each lies within its file, and no two overlap partly.
  void check_ranges(const std::map<std::string, Tensor> &tensors) const;

 private:
  File open_data(const Tensor &tensor) const;  // for an external tensor; checks its range
  std::optional<std::uint64_t> size_of_data(const Tensor &tensor) const;
  void check_range(const Tensor &tensor, std::uint64_t file_bytes) const;
  void copy(const Tensor &tensor, std::byte *out) const;
  std::vector<std::byte> load_bytes(const Tensor &tensor) const;
  void check_sum(const Tensor &tensor, const File &file) const;
  void check_unchanged(const File &file) const;

  // A file as it was when it was first read.
  struct Version {
    FileIdentity identity;
    std::int64_t modified;
    bool operator==(const Version &) const = default;
  };

  File model_;
  std::vector<std::string> roots_;
  mutable std::mutex noting_;
  mutable std::map<std::string, Version> versions_;  // by path
  mutable std::mutex summing_;
  mutable std::map<std::string, std::string> sums_;  // SHA-1s by location, of the files read so far
  mutable std::uint64_t external_bytes_ = 0;         // of all tensors
};

}  // namespace protrain::onnx_import
