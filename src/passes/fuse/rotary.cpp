// Fuses rotary position embeddings that are written as several operators: x * cos + concat(-x2, x1) * sin. x1 and x2
// are the halves of x along the last axis. The second halves of cos and sin equal the first ones. x is (B, H, S, D) or
// (B, S, H, D); Rotary takes (B, S, H, D).
#include <algorithm>

#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

// Returns x if `id` is concat(-x2, x1) and has one reader; else ValueId::none.
ValueId rotated_half(const Rewriter &r, ValueId id) {
  const Node *concat = made_for_one(r, id, "Concat");
  if (concat == nullptr || concat->inputs.size() != 2 || !is_last_axis(r, *concat)) return ValueId::none;
  const Node *negative = made_for_one(r, concat->inputs[0], "Neg");
  if (negative == nullptr || r.uses(negative->inputs[0]) != 1 || r.uses(concat->inputs[1]) != 1) return ValueId::none;
  const auto second = axis_part_of(r, negative->inputs[0]), first = axis_part_of(r, concat->inputs[1]);
  if (!first || !second || first->source != second->source) return ValueId::none;
  const Shape shape = r.shape(first->source);
  const bool halves = first->axis + 1 == shape.size() && second->axis == first->axis && first->begin == 0 &&
                      first->end * 2 == shape.back() && second->begin == first->end && second->end == shape.back();
  return halves ? first->source : ValueId::none;
}

bool has_equal_halves(const graph::Array &array) {
  const std::int64_t width = array.stored().back(), half = width / 2;
  if (width == 1) return true;
  for (std::int64_t row = 0; row < array.stored_count() / width; ++row)
    for (std::int64_t i = row * width; i < row * width + half; ++i)
      if (array.stored_double(i) != array.stored_double(i + half)) return false;
  return true;
}

// True if the two halves of the last axis are equal, by value or by the way they are computed.
bool halves_equal(Fusion &fusion, ValueId id, int depth = 0) {
  const Rewriter &r = fusion.r;
  const Shape shape = r.shape(id);
  if (shape.empty() || shape.back() % 2 != 0) return false;
  if (const graph::Array *array = r.constant_of(id)) {
    const auto [known, fresh] = fusion.equal_halves.try_emplace(Fusion::key_of(*array));
    if (fresh) known->second = has_equal_halves(*array);
    return known->second;
  }
  const Node *node = r.producer(id);
  if (node == nullptr || depth > 8) return false;
  const ValueId under = node->inputs.at(0);
  if (node->op == "Concat") return node->inputs.size() == 2 && under == node->inputs[1] && is_last_axis(r, *node);
  const Shape before = r.shape(under);
  const bool keeps_rows = node->op == "Cos" || node->op == "Sin" || node->op == "Cast" ||
                          (node->op == "Gather" && axis_of(r, *node, 0) + 1 < before.size()) ||
                          (node->op == "Reshape" && !before.empty() && before.back() == shape.back()) ||
                          (node->op == "Mul" && uniform(r, node->inputs[1]) && before == shape);
  return keeps_rows && halves_equal(fusion, under, depth + 1);
}

struct Layout {
  bool heads_first = false;  // (B, H, S, D)
  Shape angles;              // (1 or B, S, D / 2)
};

// Returns the layout of x, and the shape of the first half of cos or sin. `angles` is the shape of cos or sin with both
// halves. Returns an empty optional if the angles depend on the head.
std::optional<Layout> layout_over(const Shape &x, Shape angles) {
  if (x.size() != 4 || angles.size() > 4) return std::nullopt;
  angles.insert(angles.begin(), 4 - angles.size(), 1);
  if ((angles[0] != 1 && angles[0] != x[0]) || angles[3] != x[3]) return std::nullopt;
  if (angles[1] == 1 && angles[2] == x[2]) return Layout{true, {angles[0], x[2], x[3] / 2}};
  if (angles[2] == 1 && angles[1] == x[1]) return Layout{false, {angles[0], x[1], x[3] / 2}};
  return std::nullopt;
}

ValueId first_half(Rewriter &r, ValueId angles, const Shape &shape) {
  const Shape full = r.shape(angles);
  const std::vector<std::int64_t> last = {static_cast<std::int64_t>(full.size()) - 1};
  const ValueId half = r.emit("Slice", {angles},
                              {{"starts", std::vector<std::int64_t>{0}},
                               {"ends", std::vector<std::int64_t>{full.back() / 2}},
                               {"axes", last},
                               {"steps", std::vector<std::int64_t>{1}}});
  return r.emit("Reshape", {half}, {{"shape", shape}});
}

// Replaces the node by the Rotary of x. The result has the layout of x.
void become_rotary(Rewriter &r, const Node &node, ValueId x, const std::vector<ValueId> &angles, bool heads_first,
                   const Attributes &attributes) {
  if (!heads_first) {
    r.become(node, "Rotary", {x, angles[0], angles[1]}, attributes);
    return;
  }
  const ValueId first = r.emit("Transpose", {x}, {{"perm", kSwapHeads}});
  const ValueId rotated = r.emit("Rotary", {first, angles[0], angles[1]}, attributes);
  r.become(node, "Transpose", {rotated}, {{"perm", kSwapHeads}});
}

bool swaps_heads(const Node &node) { return node.attributes.integers("perm") == kSwapHeads; }

}  // namespace

bool fuse_rotary(Fusion &fusion, const Node &add) {
  Rewriter &r = fusion.r;
  for (std::size_t i = 0; i < 2; ++i) {
    const Node *straight = made_for_one(r, add.inputs[i], "Mul"), *rotated = made_for_one(r, add.inputs[1 - i], "Mul");
    if (straight == nullptr || rotated == nullptr) continue;
    for (std::size_t j = 0; j < 2; ++j) {
      const ValueId x = rotated_half(r, rotated->inputs[j]), sin = rotated->inputs[1 - j];
      const auto at = std::ranges::find(straight->inputs, x);
      if (x == ValueId::none || at == straight->inputs.end()) continue;
      const ValueId cos = straight->inputs[at == straight->inputs.begin() ? 1 : 0];
      const Shape shape = r.shape(x);
      const auto cos_layout = layout_over(shape, r.shape(cos)), sin_layout = layout_over(shape, r.shape(sin));
      if (!cos_layout || !sin_layout || cos_layout->heads_first != sin_layout->heads_first) continue;
      if (cos_layout->angles != sin_layout->angles || !halves_equal(fusion, cos) || !halves_equal(fusion, sin))
        continue;
      if (trained(r, cos) || trained(r, sin)) continue;  // Rotary has no gradient to its tables
      const std::vector<ValueId> angles = {first_half(r, cos, cos_layout->angles),
                                           first_half(r, sin, sin_layout->angles)};
      become_rotary(r, add, x, angles, cos_layout->heads_first,
                    {{"interleaved", std::int64_t{0}}, {"inverse", std::int64_t{0}}, {"rotary_dim", shape.back()}});
      return true;
    }
  }
  return false;
}

// Fuses concat(rotary(x1), x2), where x1 and x2 are the two parts of x.
bool fuse_partial_rotary(Fusion &fusion, const Node &concat) {
  Rewriter &r = fusion.r;
  if (concat.inputs.size() != 2 || !is_last_axis(r, concat)) return false;
  const Node *back = made_for_one(r, concat.inputs[0], "Transpose");
  const bool heads_first = back != nullptr && swaps_heads(*back);
  const Node *rotary = made_for_one(r, heads_first ? back->inputs[0] : concat.inputs[0], "Rotary");
  if (rotary == nullptr) return false;
  ValueId part = rotary->inputs[0];
  if (heads_first) {
    const Node *there = made_for_one(r, part, "Transpose");
    if (there == nullptr || !swaps_heads(*there)) return false;
    part = there->inputs[0];
  }
  const auto first = axis_part_of(r, part), second = axis_part_of(r, concat.inputs[1]);
  if (!first || !second || first->source != second->source || r.uses(part) != 1) return false;
  const Shape shape = r.shape(first->source);
  if (first->axis != 3 || second->axis != 3 || first->begin != 0 || second->begin != first->end ||
      second->end != shape[3] || rotary->attributes.integer("rotary_dim", 0) != first->end)
    return false;
  const std::vector<ValueId> angles = {rotary->inputs[1], rotary->inputs[2]};
  become_rotary(r, concat, first->source, angles, heads_first, Attributes(rotary->attributes));
  return true;
}

}  // namespace protrain::passes
