// Finds out which keys a constant mask hides. A causal mask or a window becomes attributes and needs no array.
#include <algorithm>
#include <cmath>
#include <optional>

#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

// One stored row of a mask. The visible keys lie in [begin, end). `range`: all keys there are visible, and the mask
// adds 0 to their scores. `hides`: some key is hidden. `sees`: some key is visible.
struct Row {
  std::int64_t begin = 0, end = 0;
  bool range = true, hides = false, sees = false;
};

Row read_row(const graph::Array &array, std::int64_t row, std::int64_t width, bool &finite) {
  const bool boolean = array.dtype() == DType::boolean;
  Row result;
  for (std::int64_t j = 0; j < width; ++j) {
    const double value = array.stored_double(row * width + j);
    const bool hidden = boolean ? value == 0 : value <= kHidden;
    if (hidden) {
      result.hides = true;
      finite = finite && !boolean && std::isfinite(value);
      continue;
    }
    if (!boolean && value != 0) result.range = false;
    if (!result.sees)
      result.begin = j;
    else if (result.end != j)
      result.range = false;
    result.sees = true;
    result.end = j + 1;
  }
  return result;
}

// Sets `regular` of the mask if `causal` and `window` can express its rows (Sq, Sk), and sets these two to match the
// rows. With `causal`, query i sees key j only if j <= i + Sk - Sq. With a window, it sees key j only if j > i + Sk -
// Sq - window.
void recognise(const std::vector<Row> &rows, std::int64_t keys, Mask &mask) {
  const auto queries = static_cast<std::int64_t>(rows.size());
  const auto diagonal = [&](std::int64_t i) { return i + keys - queries; };
  const auto all = [&](auto holds) {
    for (std::int64_t i = 0; i < queries; ++i)
      if (!holds(i, rows[static_cast<std::size_t>(i)])) return false;
    return true;
  };
  if (!all([](std::int64_t, const Row &row) { return row.range && row.sees; })) return;
  const bool to_end = all([&](std::int64_t, const Row &row) { return row.end == keys; });
  const bool to_diagonal = all([&](std::int64_t i, const Row &row) { return row.end == diagonal(i) + 1; });
  if (!to_end && !to_diagonal) return;
  const std::int64_t window = rows.back().begin == 0 ? 0 : keys - rows.back().begin;
  const bool band = all([&](std::int64_t i, const Row &row) {
    return row.begin == (window == 0 ? 0 : std::max<std::int64_t>(0, diagonal(i) - window + 1));
  });
  mask.regular = band;
  mask.causal = !to_end;
  mask.window = window;
}

Mask read_mask(const graph::Array &array) {
  Mask mask;
  const Shape shape = array.shape(), stored = array.stored();
  const std::int64_t width = stored.empty() ? 1 : stored.back();
  const std::int64_t count = width == 0 ? 0 : array.stored_count() / width;
  std::vector<Row> rows;
  for (std::int64_t row = 0; row < count; ++row) {
    rows.push_back(read_row(array, row, width, mask.finite));
    mask.masks |= rows.back().hides;
    mask.empty_row |= !rows.back().sees;
  }
  const std::size_t rank = shape.size();
  bool shared = rank >= 2 && !rows.empty();
  for (std::size_t i = 0; i + 2 < rank; ++i) shared = shared && stored[i] == 1;
  if (!shared) return mask;
  for (Row &row : rows)
    if (width == 1 && row.sees) row.end = shape[rank - 1];  // one stored key stands for all
  if (rows.size() == 1) rows.resize(static_cast<std::size_t>(shape[rank - 2]), rows[0]);
  if (static_cast<std::int64_t>(rows.size()) == shape[rank - 2] && !rows.empty())
    recognise(rows, shape[rank - 1], mask);
  return mask;
}

bool is_banded(const Node &attention) {
  return attention.attributes.integer("causal", 0) != 0 || attention.attributes.integer("window", 0) != 0;
}

// True if `causal` and `window` express the mask `id` for all scores. A mask that hides keys must also have a row for
// each query and a column for each key.
bool says_all(const Rewriter &r, const Node &attention, ValueId id, const Mask &mask) {
  const Shape shape = r.shape(id);
  const std::size_t rank = shape.size();
  const bool whole = rank >= 2 && shape[rank - 2] == r.shape(attention.inputs[0])[1] &&
                     shape[rank - 1] == r.shape(attention.inputs[1])[1];
  return mask.regular && (!mask.masks || whole);
}

void become_banded(Rewriter &r, const Node &attention, const Mask &mask, ValueId bias) {
  Attributes attributes = attention.attributes;
  attributes.set("causal", std::int64_t{mask.causal});
  attributes.set("window", mask.window);
  std::vector<ValueId> inputs(attention.inputs.begin(), attention.inputs.begin() + 3);
  if (bias != ValueId::none) inputs.push_back(bias);
  r.become(attention, "FusedAttention", inputs, attributes);
}

// A term that is added to scores. If `hidden` is set, `value` is a condition: the term is `hidden` where the condition
// is false, and 0 where it is true. With `negated`, the term is `hidden` where the condition is true, and 0 elsewhere.
struct Term {
  ValueId value = ValueId::none;
  std::optional<double> hidden;
  bool negated = false;
};

// Splits a mask into the terms whose sum it is. Looks at no more than kMost values, because repeated doubling
// (b = a + a, c = b + b, ...) can give more terms than memory holds.
class Terms {
 public:
  Terms(const Rewriter &r, ValueId mask) : r_(r) { add(mask); }

  bool too_many() const { return left_ < 0; }
  std::vector<Term> found;  // not all if there are too many

 private:
  static constexpr int kMost = 128;

  void add(ValueId id);
  void add_conditions(ValueId id, double hidden, bool negated);

  const Rewriter &r_;
  int left_ = kMost;  // values to look at; negative: there are more
};

// Splits the condition `id` into terms that together hide the same keys. A condition hides a key where it is false. An
// And hides each key that one of its operands hides, so each operand becomes a term of its own. With `negated`, a
// condition hides a key where it is true, and the operands of an Or become the terms. A Not inverts `negated`.
void Terms::add_conditions(ValueId id, double hidden, bool negated) {
  if (too_many() || --left_ < 0) return;
  const Node *node = r_.producer(id);
  if (node != nullptr && node->op == "Not") return add_conditions(node->inputs[0], hidden, !negated);
  if (node != nullptr && node->op == "Expand" && r_.shape(node->inputs[0]).size() == 4)
    return add_conditions(node->inputs[0], hidden, negated);
  if (node != nullptr && node->op == (negated ? "Or" : "And")) {
    for (ValueId in : node->inputs) add_conditions(in, hidden, negated);
    return;
  }
  found.push_back({id, hidden, negated});
}

// Appends to `found` the terms whose sum is the value `id`.
void Terms::add(ValueId id) {
  if (too_many() || --left_ < 0) return;
  const Node *node = r_.producer(id);
  if (node != nullptr && node->op == "Expand" && r_.shape(node->inputs[0]).size() == 4) return add(node->inputs[0]);
  if (node != nullptr && node->op == "Add") {
    for (ValueId in : node->inputs) add(in);
    return;
  }
  if (node != nullptr && node->op == "Where")
    for (std::size_t i : {1, 2}) {
      const auto hidden = uniform(r_, node->inputs[i]);
      if (!hidden || *hidden > kHidden) continue;
      add_conditions(node->inputs[0], *hidden, i == 1);
      const ValueId other = node->inputs[3 - i];
      if (uniform(r_, other) != 0.0) add(other);
      return;
    }
  found.push_back({id, std::nullopt, false});
}

// Returns a term as a bias of rank 4.
ValueId as_bias(Rewriter &r, const Term &term, DType dtype) {
  ValueId value = term.value;
  if (term.hidden) {
    const ValueId shown = r.constant(graph::Array::scalar(dtype, 0));
    const ValueId hidden = r.constant(graph::Array::scalar(dtype, *term.hidden));
    value = term.negated ? r.emit("Where", {value, hidden, shown}) : r.emit("Where", {value, shown, hidden});
  }
  Shape shape = r.shape(value);
  if (shape.size() == 4) return value;
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return r.emit("Reshape", {value}, {{"shape", shape}});
}

}  // namespace

const Mask &mask_of(Fusion &fusion, ValueId constant) {
  const graph::Array &array = *fusion.r.constant_of(constant);
  const Fusion::ConstantKey key = Fusion::key_of(array);
  const auto found = fusion.masks.find(key);
  return found != fusion.masks.end() ? found->second : fusion.masks.emplace(key, read_mask(array)).first->second;
}

bool fuse_mask(Fusion &fusion, const Node &attention) {
  Rewriter &r = fusion.r;
  if (attention.inputs.size() < 4 || r.constant_of(attention.inputs[3]) == nullptr) return false;
  if (is_banded(attention)) return false;
  const Mask &mask = mask_of(fusion, attention.inputs[3]);
  if (!says_all(r, attention, attention.inputs[3], mask)) return false;
  become_banded(r, attention, mask, ValueId::none);
  return true;
}

// Splits a bias into a constant part, which becomes `causal` and `window`, and a part computed from data, such as a
// padding mask with one row per sample. The results stay the same for every query that sees a key. They may change for
// a query that sees no key (padding before the first token). If hidden scores are finite, such a query averages over
// all keys before the fusion, but after the fusion only over the keys that `causal` and `window` leave visible.
bool fuse_data_mask(Fusion &fusion, const Node &attention) {
  Rewriter &r = fusion.r;
  if (attention.inputs.size() < 4 || r.constant_of(attention.inputs[3]) != nullptr || is_banded(attention))
    return false;
  const Terms split(r, attention.inputs[3]);
  if (split.too_many() || split.found.size() < 2) return false;
  std::vector<Term> terms = split.found;
  const auto known = std::ranges::find_if(terms, [&](const Term &term) {
    if (r.constant_of(term.value) == nullptr || term.negated) return false;
    return says_all(r, attention, term.value, mask_of(fusion, term.value));
  });
  if (known == terms.end()) return false;
  const Mask mask = mask_of(fusion, known->value);
  const DType dtype = r.type(attention.inputs[3]).dtype;
  terms.erase(known);
  ValueId bias = ValueId::none;
  for (const Term &term : terms) {
    const ValueId value = as_bias(r, term, dtype);
    bias = bias == ValueId::none ? value : r.emit("Add", {bias, value});
  }
  become_banded(r, attention, mask, bias);
  return true;
}

}  // namespace protrain::passes
