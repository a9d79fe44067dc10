// Adapter: a low-rank change of a frozen matrix of weights (LoRA, Hu et al. 2021), with the shapes and names of Hugging
// Face's PEFT. A product x W with W (in, out) becomes x W + scale * (dropout(x) A^T) B^T, with A (rank, in) and
// B (out, rank). So W becomes W + scale * (B A)^T, wherever it is read. A lookup in an embedding table is a product of
// one-hot rows with the table.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/shape.h"

namespace protrain::passes {

// A wish to adapt all parameters that match a pattern.
struct AdapterRequest {
  std::string pattern;  // a glob
  std::int64_t rank = 8;
  double alpha = 8;
  double scale = 1;    // alpha / rank, or alpha / sqrt(rank) if it is rank-stabilised
  double dropout = 0;  // the ratio; lookups have none
};

// A or B: a trained parameter that the model's file does not hold.
struct AdapterMatrix {
  enum class Start : std::uint8_t {
    zeros,
    uniform,  // in (-1 / sqrt(in), 1 / sqrt(in)), with `in` the number of columns: PyTorch's start of a linear layer
    normal,   // of mean 0 and variance 1
  };
  std::string name;
  Shape shape;
  Start start = Start::zeros;
};

struct Adapter {
  std::string parameter;  // W: an initializer of the file
  std::string module;     // the framework's module that W belongs to, as far as the file tells it
  AdapterRequest request;
  AdapterMatrix a, b;
  bool transposed = false;  // W is stored as (in, out), the transpose of B A
  bool embedding = false;   // only lookups read W
  std::size_t places = 0;   // nodes that W is adapted for
};

// Fills `out` with the start values of the elements from `first` on. They depend only on seed, name and position.
void start_values(const AdapterMatrix &matrix, std::uint64_t seed, std::uint64_t first, std::span<float> out);

// Adds the adapter's change to W, in the layout (in, out) if `transposed`, else (out, in).
void add_change(const Adapter &adapter, std::span<const float> a, std::span<const float> b, bool transposed,
                std::span<float> w);

}  // namespace protrain::passes
