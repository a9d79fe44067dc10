// Model: an ONNX file, opened and checked. A Model gives the graph, reads weights in parts, and saves the file with new
// weights. Weights stay in the file until they are read: a model of 80 GB opens in a few megabytes.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/bodies.h"
#include "graph/declared.h"
#include "graph/graph.h"
#include "graph/low_rank.h"
#include "graph/split.h"

namespace protrain::onnx_import {

// Values of the symbolic dims of the graph's inputs: {"batch": 4}.
using DimBindings = std::map<std::string, std::int64_t>;

// Values that inputs are bound to, by name: one number for all elements, one for each index of the last axis, or one
// for each element. A bool is 0 or 1.
using InputValues = std::map<std::string, std::vector<double>>;

using Dim = std::variant<std::int64_t, std::string>;  // a number, or the name of a symbolic dim

struct Input {
  std::string name;
  DType dtype;  // in the file
  std::vector<Dim> dims;
};

// The file's claim about an output of the graph. It is not checked.
struct Output {
  std::string name;
  DType dtype = DType::none;             // none: not given
  std::optional<std::vector<Dim>> dims;  // nothing: not given; "" stands for one dim that is not given
};

// Above this size, save() writes large tensors to a second file, because a model file may not exceed 2 GiB.
inline constexpr std::uint64_t kInlineBytes = 1'900'000'000;

// How save() writes a model. By default only the weights are new.
struct SavedForm {
  // If a file would be larger than this, its large tensors go to a second file.
  std::uint64_t inline_bytes = kInlineBytes;
  // Each split adds an initializer. The nodes listed in the split read the added initializer instead of the original
  // one.
  std::vector<graph::Split> splits = {};
  // The matrices of these adapters become inputs. Nodes that read an adapted initializer compute with the initializer
  // plus the product of its adapter's matrices.
  std::vector<graph::LowRank> adapters = {};
  bool as_computed = false;  // all floats have the types of the graph
};

// The source of a model: a file, a folder of onnxruntime-training's artifacts, or bytes in memory.
class ModelSource {
 public:
  ModelSource(std::string path) : path_(std::move(path)) {}  // external data lies beside it
  ModelSource(const char *path) : path_(path) {}
  // External data lies in `directory`; "" means that there is none.
  ModelSource(std::shared_ptr<const std::vector<std::byte>> bytes, std::string directory)
      : path_("the model in memory"), bytes_(std::move(bytes)), directory_(std::move(directory)) {}

  const std::string &path() const { return path_; }  // if in memory, a phrase for errors
  const std::shared_ptr<const std::vector<std::byte>> &bytes() const { return bytes_; }  // nullptr for a file
  const std::string &directory() const { return directory_; }                            // only for bytes

 private:
  std::string path_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  std::string directory_;
};

class Model {
 public:
  // Reads and checks a model. Throws Code::io, path, format, limit, version, shape, type, graph, unsupported. Reads no
  // weights, so files of external data may be missing.
  static std::unique_ptr<Model> open(const ModelSource &source);
  virtual ~Model() = default;

  // Returns the paths of the files that the model is read from: the model file, the files of external data, which may
  // be missing, and the artifacts beside the model file.
  virtual std::set<std::string> files() const = 0;

  virtual const std::vector<Input> &inputs() const = 0;  // inputs that the user sets, without initializers
  virtual const std::vector<Output> &outputs() const = 0;
  // The dims that need a size, in order of appearance. A dim whose name is a sum of others, such as "past + sequence",
  // needs none, and gets the sum.
  virtual std::vector<std::string> symbolic_dims() const = 0;
  virtual const graph::FileDeclarations &declared() const = 0;  // what the file itself says about its parameters

  // The graphs inside the control flow nodes of graph().
  virtual const graph::Bodies &bodies() const = 0;

  // Returns the element types in the file whose inputs and initializers become float32 in the graph. They can be
  // float16 and bfloat16, and also float64 if the model mainly computes in float64.
  virtual std::set<DType> replaced_floats() const = 0;

  // The element type of an initializer in the file. Code::arg for an unknown name.
  virtual DType dtype_in_file(const std::string &initializer) const = 0;

  // The float type in which the file's nodes compute with an initializer. For floats it is the initializer's own type.
  // For integers it is the type to which DequantizeLinear converts them.
  virtual DType computed_dtype(const std::string &initializer) const = 0;

  // Returns the graph in file operators. Inputs and initializers have types, node outputs have none. Initializers of
  // floats and of integers with 16 bits or less are Origin::initializer. Other initializers and Constant nodes are
  // constants already. An input that `values` binds, or that has no elements, becomes a constant and no longer counts
  // as an input of the graph. Unknown operators are kept, because passes report them all at once. Throws Code::shape if
  // a dim is not bound.
  virtual graph::Graph graph(const DimBindings &dims, const InputValues &values = {}) const = 0;

  // Returns the values of an initializer in the type that it has in the graph. Code::arg for an unknown name.
  virtual graph::Array load(const std::string &initializer) const = 0;
  // Reads out.size() bytes of the array that load() returns, from byte `offset` on. Both numbers must be multiples of
  // the element's size.
  virtual void read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Fills `out` with an initializer's new bytes and returns true. Returns false if the initializer keeps the file's
  // bytes.
  using Weights = std::function<bool(const std::string &initializer, std::byte *out)>;
  // Writes the original graph with new weights to `path`. Large tensors go to a second file, `path`.data, if the
  // original has external data or the file would be too large. Each file is written under a temporary name, synced and
  // renamed. Throws Code::path if save() would replace a file that the model is read from. Only one tensor is in memory
  // at a time. `weights` gives each weight in its type in the graph, and save() rounds it to its type in the file.
  virtual void save(const std::string &path, const Weights &weights, const SavedForm &form = {}) const = 0;
};

}  // namespace protrain::onnx_import
