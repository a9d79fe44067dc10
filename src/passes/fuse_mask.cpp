// What a constant mask hides, read from its values: the lower triangle and bands along it need no array at all.
#include <algorithm>
#include <cmath>

#include "passes/fuse.h"

namespace protrain::passes {

namespace {

constexpr double kHidden = -1e30;  // what is added to hide a key; float32's lowest, -inf and -1e30 are in use

// Visits the stored rows of a mask: for each, the visible range [begin, end), whether visible keys are a range that
// adds nothing, and whether any key is hidden.
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

// The rows of one (Sq, Sk) mask as causal and window: key j is visible to query i iff i + Sk - Sq - window < j <= i +
// Sk - Sq.
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
  bool shared = rank >= 2 && array.dtype() != DType::boolean && !rows.empty();
  for (std::size_t i = 0; i + 2 < rank; ++i) shared = shared && stored[i] == 1;
  if (!shared) return mask;
  for (Row &row : rows)
    if (width == 1 && row.sees) row.end = shape[rank - 1];  // one stored key stands for all
  if (rows.size() == 1) rows.resize(static_cast<std::size_t>(shape[rank - 2]), rows[0]);
  if (static_cast<std::int64_t>(rows.size()) == shape[rank - 2] && !rows.empty())
    recognise(rows, shape[rank - 1], mask);
  return mask;
}

}  // namespace

const Mask &mask_of(Fusion &fusion, ValueId constant) {
  const graph::Array &array = *fusion.r.constant_of(constant);
  const std::pair key(array.bytes(), array.shape());
  const auto found = fusion.masks.find(key);
  return found != fusion.masks.end() ? found->second : fusion.masks.emplace(key, read_mask(array)).first->second;
}

bool fuse_mask(Fusion &fusion, const Node &attention) {
  Rewriter &r = fusion.r;
  if (attention.inputs.size() < 4 || r.constant_of(attention.inputs[3]) == nullptr) return false;
  if (attention.attributes.integer("causal", 0) != 0 || attention.attributes.integer("window", 0) != 0) return false;
  const Mask &mask = mask_of(fusion, attention.inputs[3]);
  const Shape q = r.shape(attention.inputs[0]), k = r.shape(attention.inputs[1]), bias = r.shape(attention.inputs[3]);
  const bool whole = bias[2] == q[1] && bias[3] == k[1];
  if (!mask.regular || (mask.masks && !whole)) return false;
  Attributes attributes = attention.attributes;
  attributes.set("causal", std::int64_t{mask.causal});
  attributes.set("window", mask.window);
  std::vector<ValueId> inputs(attention.inputs.begin(), attention.inputs.begin() + 3);
  r.become(attention, "FusedAttention", inputs, attributes);
  return true;
}

}  // namespace protrain::passes
