#include "passes/parameters/formula.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace protrain::passes {

namespace {

using graph::Array;

// Holds the stored numbers of an array as doubles. They are converted only once, because files may hold a mask of a
// million numbers for each layer.
struct Numbers {
  explicit Numbers(const Array &array)
      : shape(array.stored()),
        repeats(array.stored() != array.shape()),
        values(static_cast<std::size_t>(array.stored_count())) {
    graph::load(array.dtype(), array.bytes(), 1, array.stored_count(), values.data());
    for (double x : values) most = std::max(most, std::abs(x));
  }

  std::int64_t count() const { return static_cast<std::int64_t>(values.size()); }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }

  Shape shape;
  bool repeats;  // some axis repeats its numbers, and is stored once
  std::vector<double> values;
  double most = 0;  // the largest magnitude; numbers far below it count as zero
};

constexpr std::int64_t kShortest = 5;  // least count of numbers in a line; 5 give three equations for r of line_of()

// True for a table of sines and cosines of positions, in which the squares of a sine and of its cosine add up to one.
// Each row holds the sines in one half and the cosines in the other, or sines and cosines in turns. A row for padding
// may hold zeros.
bool is_sinusoidal(const Numbers &table) {
  if (table.shape.size() < 2 || table.repeats) return false;
  const std::int64_t width = table.shape.back();
  if (width < 4 || width % 2 != 0) return false;
  const std::int64_t half = width / 2, rows = table.count() / width;
  std::int64_t read = 0;
  bool halves = true, turns = true;
  for (std::int64_t row = 0; row < rows && (halves || turns); ++row) {
    const auto squares = [&](std::int64_t i, std::int64_t j) {
      const double a = table[row * width + i], b = table[row * width + j];
      return a * a + b * b;
    };
    const bool padding = squares(0, half) == 0 && squares(1, half + 1) == 0;
    read += padding ? 0 : 1;
    const auto is_one = [&](double sum) { return std::abs(sum - (padding ? 0 : 1)) < 1e-5; };
    for (std::int64_t i = 0; i < half; ++i) {
      halves = halves && is_one(squares(i, half + i));
      turns = turns && is_one(squares(2 * i, 2 * i + 1));
    }
  }
  return read > 1 && (halves || turns);
}

enum class Line { flat, curve, neither };

// Returns `curve` if c[k-1] + c[k+1] = r c[k] with one r for all k, as in sines, cosines, even steps and powers.
// Returns `flat` if all numbers are nearly equal. `most_of_all` is the largest magnitude in the array.
Line line_of(const std::vector<double> &c, double most_of_all) {
  double products = 0, squares = 0, least = c[0], most = c[0];
  for (double x : c) {
    least = std::min(least, x);
    most = std::max(most, x);
  }
  const double largest = std::max(std::abs(least), std::abs(most)), range = most - least;
  if (!std::isfinite(range)) return Line::neither;
  if (range <= 1e-5 * std::max(largest, most_of_all)) return Line::flat;
  for (std::size_t k = 1; k + 1 < c.size(); ++k) {
    products += (c[k - 1] + c[k + 1]) * c[k];
    squares += c[k] * c[k];
  }
  if (squares == 0) return Line::neither;
  const double r = products / squares, tolerance = 1e-6 * largest + 1e-4 * range;
  for (std::size_t k = 1; k + 1 < c.size(); ++k)
    if (std::abs(c[k - 1] + c[k + 1] - r * c[k]) > tolerance) return Line::neither;
  return Line::curve;
}

std::vector<double> differences(const std::vector<double> &c) {
  std::vector<double> found;
  for (std::size_t k = 1; k < c.size(); ++k) found.push_back(c[k] - c[k - 1]);
  return found;
}

// True if each row of numbers along the axis is flat or follows a curve (see line_of()), and at least one follows a
// curve. If a row is neither, the differences of its neighbouring numbers may follow a curve instead, as they do in
// raised cosines, such as a Hann window.
bool follows_curves(const Numbers &numbers, std::size_t axis) {
  const Shape &shape = numbers.shape;
  const std::int64_t length = shape[axis];
  if (length < kShortest) return false;
  std::int64_t inner = 1, curves = 0;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<double> line(static_cast<std::size_t>(length));
  for (std::int64_t at = 0; at < numbers.count() / length; ++at) {
    const std::int64_t begin = at / inner * inner * length + at % inner;
    for (std::int64_t k = 0; k < length; ++k) line[static_cast<std::size_t>(k)] = numbers[begin + k * inner];
    Line found = line_of(line, numbers.most);
    if (found == Line::neither && length > kShortest + 1) found = line_of(differences(line), 0);
    if (found == Line::neither) return false;
    curves += found == Line::curve ? 1 : 0;
  }
  return curves > 0;
}

// True if the numbers look like a filter bank: none is below zero, and at least 60% are zero, but not all.
bool is_bank(const Numbers &numbers) {
  const std::int64_t count = numbers.count();
  if (count < 64 || numbers.repeats) return false;
  std::int64_t zeros = 0;
  for (double x : numbers.values) {
    if (!(x >= 0)) return false;
    zeros += x == 0 ? 1 : 0;
  }
  return 10 * zeros >= 6 * count && zeros < count;
}

// True if all numbers are zeros and ones, as in an adjacency matrix or one-hot rows. False for fewer than 9 numbers,
// which prove little.
bool is_zeros_and_ones(const Numbers &numbers) {
  return numbers.count() >= 9 && std::ranges::all_of(numbers.values, [](double x) { return x == 0 || x == 1; });
}

bool is_coarse(const Numbers &numbers) {
  return std::ranges::all_of(numbers.values, [](double x) { return std::isinf(x) || 2 * x == std::floor(2 * x); });
}

}  // namespace

bool is_uniform(const Array &array) { return array.compact().stored_count() == 1; }

bool is_identity(const Array &given) {
  const Shape &shape = given.shape();
  const auto first =
      static_cast<std::size_t>(std::ranges::find_if(shape, [](auto dim) { return dim != 1; }) - shape.begin());
  if (shape.size() < first + 2 || given.stored() != shape) return false;
  const std::int64_t rows = shape[first], columns = shape[first + 1];
  std::int64_t window = 1, centre = 0;
  for (std::size_t axis = first + 2; axis < shape.size(); ++axis) {
    window *= shape[axis];
    centre = centre * shape[axis] + shape[axis] / 2;
  }
  const Numbers numbers(given);
  for (std::int64_t i = 0; i < numbers.count(); ++i) {
    const std::int64_t row = i / (columns * window), at = i % (columns * window);
    if (numbers[i] != (at == row % columns * window + centre ? 1 : 0)) return false;
  }
  return rows >= 2 && rows % columns == 0;
}

std::string formula_of(const Array &given, bool coarse) {
  const Array array = given.compact();
  if (array.stored_count() < 4) return "";
  const Numbers numbers(array);
  if (is_sinusoidal(numbers)) return "sines and cosines of positions";
  for (std::size_t axis = 0; axis < numbers.shape.size(); ++axis)
    if (follows_curves(numbers, axis)) return "even steps, powers or waves";
  if (is_zeros_and_ones(numbers)) return "nothing but zeros and ones";
  if (is_bank(numbers)) return "a bank of filters";
  return coarse && is_coarse(numbers) ? "nothing but whole numbers and halves" : "";
}

}  // namespace protrain::passes
