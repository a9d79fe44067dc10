// Model: an ONNX file, opened and checked. Gives its graph, streams its weights, writes itself out with new ones.
// Weights stay in the file until somebody reads them: a model of 80 GB is opened in a few megabytes.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/declared.h"
#include "graph/graph.h"
#include "graph/split.h"

namespace protrain::onnx_import {

// What the dims of the graph's inputs are bound to: {"batch": 4}.
using DimBindings = std::map<std::string, std::int64_t>;

using Dim = std::variant<std::int64_t, std::string>;  // a number, or the name of a symbolic dim

struct Input {
  std::string name;
  DType dtype;
  std::vector<Dim> dims;
};

// What the file says about an output of the graph; nobody has checked it.
struct Output {
  std::string name;
  DType dtype = DType::none;             // none: not said
  std::optional<std::vector<Dim>> dims;  // none: not said; "" for a single one that is not
};

// A file may not pass 2 GiB; beyond this its weights go to a second one.
inline constexpr std::uint64_t kInlineBytes = 1'900'000'000;

// Where a model is read from: a file, or bytes in memory.
class Source {
 public:
  Source(std::string path) : path_(std::move(path)) {}  // external data lie beside it
  Source(const char *path) : path_(path) {}
  // External data lie in `directory`; empty: there are none.
  Source(std::shared_ptr<const std::vector<std::byte>> bytes, std::string directory)
      : path_("the model in memory"), bytes_(std::move(bytes)), directory_(std::move(directory)) {}

  const std::string &path() const { return path_; }  // of bytes: what stands for it in errors
  const std::shared_ptr<const std::vector<std::byte>> &bytes() const { return bytes_; }  // or none
  const std::string &directory() const { return directory_; }                            // of bytes alone

 private:
  std::string path_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  std::string directory_;
};

class Model {
 public:
  // Reads and validates; Code::io, path, format, limit, version, shape, type, graph, unsupported. Reads no weights, and
  // external data need not be there until somebody does.
  static std::unique_ptr<Model> open(const Source &source);
  virtual ~Model() = default;

  virtual const std::vector<Input> &inputs() const = 0;  // those the user sets; initializers are left out
  virtual const std::vector<Output> &outputs() const = 0;
  virtual std::vector<std::string> symbolic_dims() const = 0;  // in order of appearance
  virtual const graph::Declared &declared() const = 0;         // which initializers the file itself calls parameters

  // The graph in file operators. Inputs and initializers are typed, node outputs are not. Initializers that are not
  // float are constants already; float ones are Origin::initializer. Constant nodes are constants. Unknown operators
  // are kept as they are (passes report them all at once). Code::shape where a dim is not bound.
  virtual graph::Graph graph(const DimBindings &dims) const = 0;

  // Values of an initializer in its own dtype, element_count * size bytes. Code::arg for an unknown name,
  // Code::unsupported for float16 and bfloat16.
  virtual graph::Array load(const std::string &initializer) const = 0;
  // `out.size()` of those bytes, from `offset`.
  virtual void read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Gives the bytes of a trained initializer, or false where the file's own bytes are to be copied.
  using Weights = std::function<bool(const std::string &initializer, std::byte *out)>;
  // Writes the original graph with these weights: to `path` alone, or with `path`.data beside it where the original has
  // external data or would pass `inline_bytes`. Each file is written under a temporary name, synced, renamed; never
  // over one that the model reads (Code::path). Holds one tensor at a time in memory. Weights are in the initializer's
  // dtype. Each of `splits` becomes an initializer of its own, and its readers read it.
  virtual void save(const std::string &path, const Weights &weights, std::uint64_t inline_bytes = kInlineBytes,
                    const std::vector<graph::Split> &splits = {}) const = 0;
};

}  // namespace protrain::onnx_import
