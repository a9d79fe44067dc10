// Adapter: a low-rank change of a frozen matrix of weights (LoRA, Hu et al. 2021), with the shapes and names of Hugging
// Face's PEFT. A product x W with W (in, out) becomes x W + scale * (dropout(x) A^T) B^T, with A (rank, in) and B (out,
// rank). So W becomes W + scale * (B A)^T, wherever it is read. A lookup in an embedding table is adapted in the same
// way, because it is a product of one-hot rows with the table.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"

namespace protrain::passes {

// A request to adapt all parameters that match a pattern, or the parameter that belongs to a module.
struct AdapterRequest {
  std::string pattern;  // one_module = true: the module's name, which may lack leading parts; false: a glob
  bool one_module = false;
  std::int64_t rank = 8;
  double alpha = 8;
  bool stabilised = false;  // rank-stabilised: scaled by alpha / sqrt(rank)
  double dropout = 0;       // the ratio of dropout; lookups have no dropout

  double scale() const;  // alpha / rank, unless it is stabilised
};

// One of an adapter's two matrices, A or B. It is a trained parameter that the model's file does not hold.
struct AdapterMatrix {
  enum class Start : std::uint8_t {
    zeros,
    uniform,  // in (-1 / sqrt(in), 1 / sqrt(in)), with `in` the number of columns: PyTorch's start of a linear layer
    normal,   // of mean 0 and variance 1
  };
  std::string name;
  Shape shape;
  Start start = Start::zeros;
  std::string tensor = "";  // not empty: the tensor of a file of adapters that holds the start values
};

using ModuleNames = std::map<std::string, std::string>;  // by initializer: the framework's module it belongs to

struct Adapter {
  std::string parameter;  // W: an initializer of the file
  std::string module;     // the framework's module that W belongs to, as far as the file tells it
  AdapterRequest request;
  AdapterMatrix a, b;
  bool transposed = false;  // W is stored as (in, out), the transpose of B A
  bool embedding = false;   // only lookups read W
  std::size_t places = 0;   // nodes that W is adapted for

  // Returns the name that the module has in a file of adapters. If the adapter was read from such a file, this is the
  // module's name in that file.
  const std::string &name_in_file() const { return request.one_module ? request.pattern : module; }
};

// Returns the indices of the modules that `name`, from a file of adapters, stands for. This is the module of exactly
// this name, if there is one. Otherwise these are all modules whose names end in "." and `name`, because a file may
// leave out the leading parts of a name.
std::vector<std::size_t> modules_of(const std::vector<std::string> &modules, const std::string &name);

// Returns the matrix of that name; nullptr if there is none.
const AdapterMatrix *find_matrix(const std::vector<Adapter> &adapters, const std::string &name);

// Fills `out` with the initial values of the matrix, from element `first` on. A value depends only on the seed, the
// matrix's name and the element's position.
void start_values(const AdapterMatrix &matrix, std::uint64_t seed, std::uint64_t first, std::span<float> out);

// Adds the adapter's change to `w`, which holds the values of W, as (in, out) if `transposed`, else as (out, in). `a`
// and `b` are the values of A and B.
void add_change(const Adapter &adapter, std::span<const float> a, std::span<const float> b, bool transposed,
                std::span<float> w);

}  // namespace protrain::passes
