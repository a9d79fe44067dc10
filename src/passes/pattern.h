// What patterns are made of: reading constants, following values to what made them, and seeing through the many ways
// in which one formula is written (products in any order, division by constants, polynomials).
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "passes/rewriter.h"

namespace protrain::passes {

inline constexpr double kFormulaTolerance = 1e-6;  // relative; constants of formulas come rounded to float32

bool near(double found, double wanted);

// The value of a constant all of whose elements are equal.
std::optional<double> uniform(const Rewriter &r, ValueId id);

// The node that makes `id`, if it is an `op`; `sole`: and nobody else reads its first output.
const Node *made_by(const Rewriter &r, ValueId id, std::string_view op);
const Node *made_for_one(const Rewriter &r, ValueId id, std::string_view op);

// x where `id` is x + constant, made for one reader.
struct PlusConstant {
  ValueId value = ValueId::none;
  double constant = 0;
};
std::optional<PlusConstant> plus_constant(const Rewriter &r, ValueId id);

// What remains of a product after all multiplications, divisions and reciprocals made for it alone are multiplied out.
struct Factor {
  ValueId value = ValueId::none;
  bool inverse = false;
};
struct Product {
  double constant = 1;
  std::vector<Factor> factors;
};
Product product_of(const Rewriter &r, ValueId id);        // of a value; itself where others read it too
Product product_of(const Rewriter &r, const Node &node);  // of the node being visited: a Mul or Div

// Coefficients c where `id` is c[0] + c[1] x + c[2] x^2 + c[3] x^3, made of nodes for one reader.
using Polynomial = std::array<double, 4>;
std::optional<Polynomial> polynomial_in(const Rewriter &r, ValueId id, ValueId x);

// The part [begin, end) of `source` along one axis, by a Slice or a Split.
struct Piece {
  ValueId source = ValueId::none;
  std::size_t axis = 0;
  std::int64_t begin = 0, end = 0;
};
std::optional<Piece> piece_of(const Rewriter &r, ValueId id);

bool trained(const Rewriter &r, ValueId id);  // a gradient of it may be wanted

std::size_t axis_of(const Rewriter &r, const Node &node, std::int64_t fallback);  // attribute "axis", not negative
bool is_last_axis(const Rewriter &r, const Node &node);
// Perms of rank n >= 2.
std::vector<std::int64_t> last_two_swapped(std::size_t rank);

}  // namespace protrain::passes
