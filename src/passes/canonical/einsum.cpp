// Computes Einsum by products of two operands at a time. A product is a matrix product if the two operands share an
// axis that neither the output nor a later operand has. Otherwise the product is elementwise.
#include <algorithm>

#include "ops/einsum.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;
using AxisLabels = std::u32string;

struct EinsumTerm {
  ValueId value;
  AxisLabels labels;  // one for each axis of the value
};

bool has_label(const AxisLabels &labels, char32_t label) { return labels.find(label) != AxisLabels::npos; }

AxisLabels common(const AxisLabels &a, const AxisLabels &b, bool in_both) {
  AxisLabels found;
  for (char32_t label : a)
    if (has_label(b, label) == in_both) found += label;
  return found;
}

// Computes one einsum equation, two terms at a time. Each step sums axes as soon as nothing else needs them, so
// intermediate results stay small.
class Contraction {
 public:
  Contraction(Canonical &c, const ops::Einsum &einsum) : c_(c), einsum_(einsum) {}

  // Returns the term with one axis per label. Takes the diagonal of axes that have the same label. Removes an axis of
  // one element if its label has more elements in another term.
  EinsumTerm simple(EinsumTerm term) {
    for (std::size_t i = 0; i < term.labels.size();) {
      const std::size_t again = term.labels.find(term.labels[i], i + 1);
      if (again == AxisLabels::npos)
        ++i;
      else
        term = diagonal(term, i, again);
    }
    Shape shape;
    AxisLabels kept;
    const Shape whole = c_.shape(term.value);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (whole[i] != einsum_.dims.at(term.labels[i])) continue;
      shape.push_back(whole[i]);
      kept += term.labels[i];
    }
    return {c_.reshape(term.value, shape), kept};
  }

  // Sums over the labels that are not in `wanted`.
  EinsumTerm summed(const EinsumTerm &term, const AxisLabels &wanted) {
    Integers axes;
    for (std::size_t i = 0; i < term.labels.size(); ++i)
      if (!has_label(wanted, term.labels[i])) axes.push_back(static_cast<std::int64_t>(i));
    if (axes.empty()) return term;
    return {c_.add("ReduceSum", {term.value}, {{"axes", axes}, {"keepdims", std::int64_t{0}}}),
            common(term.labels, wanted, true)};
  }

  // Returns the product of a and b, summed over the labels that are not in `wanted`.
  EinsumTerm product(EinsumTerm a, EinsumTerm b, const AxisLabels &wanted) {
    a = summed(a, wanted + b.labels);
    b = summed(b, wanted + a.labels);
    const AxisLabels shared = common(a.labels, b.labels, true);
    const AxisLabels batch = common(shared, wanted, true), inner = common(shared, wanted, false);
    const AxisLabels rows = common(a.labels, shared, false), columns = common(b.labels, shared, false);
    const AxisLabels all = batch + rows + columns;
    if (inner.empty()) return {c_.add("Mul", {spread(a, all), spread(b, all)}), all};
    Shape left = einsum_.shape_of(batch), right = left;
    const std::int64_t depth = element_count(einsum_.shape_of(inner));
    left.insert(left.end(), {element_count(einsum_.shape_of(rows)), depth});
    right.insert(right.end(), {depth, element_count(einsum_.shape_of(columns))});
    const ValueId made = c_.add("MatMul", {c_.reshape(ordered(a, batch + rows + inner), left),
                                           c_.reshape(ordered(b, batch + inner + columns), right)});
    return {c_.reshape(made, einsum_.shape_of(all)), all};
  }

  // Returns the term with its axes in the order of the labels in `order`.
  ValueId ordered(const EinsumTerm &term, const AxisLabels &order) {
    if (term.labels == order) return term.value;
    Integers perm;
    for (char32_t label : order) perm.push_back(static_cast<std::int64_t>(term.labels.find(label)));
    return c_.transpose(term.value, perm);
  }

  // Returns the term with an axis for each label of `all`. The axis has one element if the term lacks the label.
  ValueId spread(const EinsumTerm &term, const AxisLabels &all) {
    Shape shape = einsum_.shape_of(all);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!has_label(term.labels, all[i])) shape[i] = 1;
    return c_.reshape(ordered(term, common(all, term.labels, true)), shape);
  }

 private:
  // Returns the diagonal of axes `first` and `second`, which have the same label: the elements whose indices on both
  // axes are equal.
  EinsumTerm diagonal(const EinsumTerm &term, std::size_t first, std::size_t second) {
    const Shape shape = c_.shape(term.value);
    const std::int64_t size = shape[first];
    Shape stretched(shape.size(), 1);
    stretched[first] = stretched[second] = size;
    const Type type = {DType::boolean, stretched};
    const ValueId mask = c_.constant("diagonal", type, [&] {
      Integers ones(static_cast<std::size_t>(size * size), 0);
      for (std::int64_t i = 0; i < size; ++i) ones[static_cast<std::size_t>(i * (size + 1))] = 1;
      return graph::Array::from_integers(type, ones);
    });
    // A product with a mask of 0 and 1 would turn an infinity outside of the diagonal into NaN.
    const ValueId kept = c_.add("Where", {mask, term.value, c_.scalar(c_.type(term.value).dtype, 0)});
    AxisLabels labels = term.labels;
    labels.erase(second, 1);
    return {c_.add("ReduceSum", {kept},
                   {{"axes", Integers{static_cast<std::int64_t>(second)}}, {"keepdims", std::int64_t{0}}}),
            labels};
  }

  Canonical &c_;
  const ops::Einsum &einsum_;
};

bool einsum(Canonical &c, Node &node) {
  std::vector<Shape> shapes;
  for (ValueId in : node.inputs) shapes.push_back(c.shape(in));
  if (shapes.empty() || !is_float(c.type(node.inputs[0]).dtype)) return false;
  const ops::Einsum equation = ops::resolve_einsum(node, shapes);
  Contraction contraction(c, equation);
  std::vector<EinsumTerm> terms;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    terms.push_back(contraction.simple({node.inputs[i], equation.operands[i]}));
  EinsumTerm result = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) {
    AxisLabels wanted = equation.output;
    for (std::size_t later = i + 1; later < terms.size(); ++later) wanted += terms[later].labels;
    result = contraction.product(result, terms[i], wanted);
  }
  result = contraction.summed(result, equation.output);
  const ValueId spread = contraction.spread(result, equation.output);
  c.become(node, "Expand", {spread}, {{"shape", equation.shape_of(equation.output)}});
  return true;
}

}  // namespace

Rules einsum_rules() { return {{"Einsum", einsum}}; }

}  // namespace protrain::passes
