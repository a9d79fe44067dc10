// Einsum's equations: "ij,jk->ik", "...hd,...kd->...hk", "ii->i", and "ij,jk" with an implied output.
#include "ops/einsum.h"

#include <algorithm>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

constexpr char32_t kFirstHidden = 0x100;  // label of an ellipsis's last axis; the axes before it have the next labels

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

std::vector<std::string> split_at_commas(const std::string &text) {
  std::vector<std::string> terms(1);
  for (char character : text) {
    if (character == ',')
      terms.emplace_back();
    else
      terms.back() += character;
  }
  return terms;
}

bool is_letter(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z');
}

// Returns the labels of the axes of a term, such as "...hd". `hidden` is the number of axes that the ellipsis stands
// for.
std::u32string labels_of(const std::string &term, std::size_t hidden, const std::string &subject) {
  std::u32string labels;
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term.compare(i, 3, "...") == 0) {
      for (std::size_t axis = hidden; axis-- > 0;) labels += kFirstHidden + static_cast<char32_t>(axis);
      i += 2;
      continue;
    }
    require(is_letter(term[i]), Code::graph, subject, "the equation's term \"{}\" is not made of letters", term);
    labels += static_cast<unsigned char>(term[i]);
  }
  return labels;
}

// Returns the output's labels if the equation gives none: axes under an ellipsis, then the letters that occur once, in
// alphabetical order.
std::u32string implied_output(const std::vector<std::u32string> &operands) {
  std::map<char32_t, int> counts;
  for (const std::u32string &operand : operands)
    for (char32_t label : operand) ++counts[label];
  std::u32string hidden, seen_once;
  for (const auto &[label, count] : counts)
    if (label >= kFirstHidden)
      hidden.insert(hidden.begin(), label);
    else if (count == 1)
      seen_once += label;
  return hidden + seen_once;
}

std::vector<Type> infer_einsum(const NodeTypes &types) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    require(types.input(i).dtype == types.input(0).dtype, Code::type, types.subject(),
            "the operands have different types");
    shapes.push_back(types.input(i).shape);
  }
  const Einsum einsum = resolve_einsum(types.node, shapes);
  return {{types.input(0).dtype, einsum.shape_of(einsum.output)}};
}

}  // namespace

Shape Einsum::shape_of(const std::u32string &labels) const {
  Shape shape;
  for (char32_t label : labels) shape.push_back(dims.at(label));
  return shape;
}

Einsum resolve_einsum(const Node &node, const std::vector<Shape> &shapes) {
  const std::string &subject = node.subject();
  const std::string equation = without_spaces(node.attributes.text("equation", ""));
  const std::size_t arrow = equation.find("->");
  const std::vector<std::string> terms = split_at_commas(equation.substr(0, arrow));
  require(terms.size() == shapes.size(), Code::graph, subject, "the equation \"{}\" is not one of {} operands",
          equation, shapes.size());
  Einsum einsum;
  std::size_t most_hidden = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool has_ellipsis = terms[i].find("...") != std::string::npos;
    const std::size_t letters = terms[i].size() - (has_ellipsis ? 3 : 0), rank = shapes[i].size();
    require(letters == rank || (has_ellipsis && letters < rank), Code::shape, subject,
            "\"{}\" does not name the axes of {}", terms[i], to_text(shapes[i]));
    most_hidden = std::max(most_hidden, rank - letters);
    einsum.operands.push_back(labels_of(terms[i], rank - letters, subject));
    for (std::size_t axis = 0; axis < rank; ++axis) {
      std::int64_t &dim = einsum.dims.emplace(einsum.operands[i][axis], 1).first->second;
      require(dim == shapes[i][axis] || dim == 1 || shapes[i][axis] == 1, Code::shape, subject,
              "axis {} of {} does not fit \"{}\"", axis, to_text(shapes[i]), equation);
      if (shapes[i][axis] != 1) dim = shapes[i][axis];
    }
  }
  einsum.output = arrow == std::string::npos ? implied_output(einsum.operands)
                                             : labels_of(equation.substr(arrow + 2), most_hidden, subject);
  for (char32_t label : einsum.output)
    require(einsum.dims.contains(label) && std::ranges::count(einsum.output, label) == 1, Code::graph, subject,
            "the output of \"{}\" names an axis that no operand has, or one twice", equation);
  return einsum;
}

Family einsum_family() { return {{.name = "Einsum", .infer = infer_einsum, .file_only = true}}; }

}  // namespace protrain::ops
