// Functions for matching patterns. They read constants, follow values to their producers, and recognize a formula in
// any of the ways to write it (products in any order, division by constants, polynomials).
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "passes/rewriter.h"

namespace protrain::passes {

inline constexpr double kFormulaTolerance = 1e-6;  // relative, because formulas' constants come rounded to float32

bool near(double found, double wanted);

// Returns the value of the elements if `id` is a constant whose elements are all equal, else an empty optional.
std::optional<double> uniform(const Rewriter &r, ValueId id);

// made_by() returns the node whose first output is `id`, if the node's operator is `op`; else nullptr. made_for_one()
// also requires that `id` has one reader.
const Node *made_by(const Rewriter &r, ValueId id, std::string_view op);
const Node *made_for_one(const Rewriter &r, ValueId id, std::string_view op);

// A sum `value` + `constant` that has one reader.
struct PlusConstant {
  ValueId value = ValueId::none;
  double constant = 0;
};
std::optional<PlusConstant> plus_constant(const Rewriter &r, ValueId id);

// The factors of a product. A factor that is itself a product, quotient, reciprocal, square or cube is replaced by its
// own factors, if only the product reads it.
struct Factor {
  ValueId value = ValueId::none;
  bool inverse = false;
};
struct Product {
  double constant = 1;
  std::vector<Factor> factors;
};
Product product_of(const Rewriter &r, ValueId id);        // of a value; it is one factor if it has several readers
Product product_of(const Rewriter &r, const Node &node);  // of the visited node, a Mul or Div

// The coefficients c of a polynomial c[0] + c[1] x + c[2] x^2 + c[3] x^3. polynomial_in() returns the coefficients if
// the value `id` is a polynomial of `x` and each node of the expression has one reader.
using Polynomial = std::array<double, 4>;
std::optional<Polynomial> polynomial_in(const Rewriter &r, ValueId id, ValueId x);

// The part [begin, end) of `source` along `axis`, as a Slice or a Split takes it.
struct AxisPart {
  ValueId source = ValueId::none;
  std::size_t axis = 0;
  std::int64_t begin = 0, end = 0;
};
std::optional<AxisPart> axis_part_of(const Rewriter &r, ValueId id);

bool trained(const Rewriter &r, ValueId id);  // true if the value may need a gradient

std::size_t axis_of(const Rewriter &r, const Node &node, std::int64_t fallback);  // "axis" counted from the front
bool is_last_axis(const Rewriter &r, const Node &node);
// Returns the permutation of `rank` axes (at least 2) that swaps the last two.
std::vector<std::int64_t> last_two_swapped(std::size_t rank);

}  // namespace protrain::passes
