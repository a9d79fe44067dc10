#include "passes/adapter.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "arith/random.h"
#include "base/text.h"

namespace protrain::passes {

double AdapterRequest::scale() const {
  const auto divisor = static_cast<double>(rank);
  return alpha / (stabilised ? std::sqrt(divisor) : divisor);
}

std::vector<std::size_t> modules_of(const std::vector<std::string> &modules, const std::string &name) {
  const auto equal = std::ranges::find(modules, name);
  if (equal != modules.end()) return {static_cast<std::size_t>(equal - modules.begin())};
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < modules.size(); ++i)
    if (modules[i].ends_with("." + name)) found.push_back(i);
  return found;
}

const AdapterMatrix *find_matrix(const std::vector<Adapter> &adapters, const std::string &name) {
  for (const Adapter &adapter : adapters)
    for (const AdapterMatrix *matrix : {&adapter.a, &adapter.b})
      if (matrix->name == name) return matrix;
  return nullptr;
}

void start_values(const AdapterMatrix &matrix, std::uint64_t seed, std::uint64_t first, std::span<float> out) {
  const arith::Stream stream = arith::stream_of(seed, 0, fnv1a(matrix.name));
  const double bound = 1 / std::sqrt(static_cast<double>(matrix.shape.back()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const arith::Words words = arith::numbers(stream, 0, first + i);
    const double u = arith::uniform(words.word[0]), v = arith::uniform(words.word[1]);
    switch (matrix.start) {
      case AdapterMatrix::Start::zeros:
        out[i] = 0;
        break;
      case AdapterMatrix::Start::uniform:
        out[i] = static_cast<float>((2 * u - 1) * bound);
        break;
      case AdapterMatrix::Start::normal:  // Box and Muller, 1958
        out[i] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
        break;
    }
  }
}

void add_change(const Adapter &adapter, std::span<const float> a, std::span<const float> b, bool transposed,
                std::span<float> w) {
  const auto rank = static_cast<std::size_t>(adapter.request.rank);
  const auto in = static_cast<std::size_t>(adapter.a.shape[1]), out = static_cast<std::size_t>(adapter.b.shape[0]);
  const std::size_t rows = transposed ? in : out, columns = transposed ? out : in;
  std::vector<float> right(a.begin(), a.end());  // (rank, columns): A, or the transpose of B
  if (transposed) {
    right.resize(b.size());
    for (std::size_t i = 0; i < b.size(); ++i) right[i % rank * columns + i / rank] = b[i];
  }
  std::vector<float> sum(columns);
  for (std::size_t row = 0; row < rows; ++row) {
    std::ranges::fill(sum, 0.0f);
    for (std::size_t k = 0; k < rank; ++k) {
      const float left = transposed ? a[k * in + row] : b[row * rank + k];
      for (std::size_t column = 0; column < columns; ++column) sum[column] += left * right[k * columns + column];
    }
    for (std::size_t column = 0; column < columns; ++column)
      w[row * columns + column] += static_cast<float>(adapter.request.scale()) * sum[column];
  }
}

}  // namespace protrain::passes
