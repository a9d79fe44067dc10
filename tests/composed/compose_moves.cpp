// Steps of the Composer that move elements, reduce them, or read and write by index.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "composed/composer.h"

namespace protrain::test {

void Composer::reshape() {
  const ValueId x = any();
  const Shape s = shape(x);
  switch (dice_.below(4)) {
    case 0:
      return keep(add("Flatten", {x}, {{"axis", dice_.between(0, static_cast<std::int64_t>(s.size()))}}));
    case 1:
      return keep(add("Unsqueeze", {x}, {{"axes", Integers{dice_.between(0, static_cast<std::int64_t>(s.size()))}}}));
    case 2:
      return keep(add("Squeeze", {x}));
    default: {
      Integers wanted;
      for (std::int64_t d : s)  // splits some even axes in two
        if (d % 2 == 0 && d > 0 && dice_.chance(0.5)) {
          wanted.insert(wanted.end(), {d / 2, 2});
        } else {
          wanted.push_back(d);
        }
      if (wanted.size() > 1 && dice_.chance(0.5)) {
        wanted[0] *= wanted[1];
        wanted.erase(wanted.begin() + 1);
      }
      return keep(add("Reshape", {x}, {{"shape", wanted}, {"allowzero", std::int64_t{1}}}));
    }
  }
}

void Composer::move() {
  const ValueId x = any();
  const std::size_t n = rank(x);
  switch (dice_.below(5)) {
    case 0: {
      Shape wide = shape(x);
      for (std::int64_t &d : wide)
        if (d == 1) d = dice_.between(1, 3);
      if (dice_.chance(0.4)) wide.insert(wide.begin(), dice_.between(1, 3));
      return keep(add("Expand", {x}, {{"shape", wide}}));
    }
    case 1: {
      Integers repeats(n, 1);
      if (n > 0) repeats[static_cast<std::size_t>(axis_of(x))] = dice_.between(1, 3);
      return keep(add("Tile", {x}, {{"repeats", repeats}}));
    }
    case 2:
      return keep(add("DepthToSpace", {of_rank(4)}, {{"blocksize", std::int64_t{2}}}));
    case 3:
      return keep(add("Trilu", {x}, {{"upper", dice_.below(2)}, {"k", dice_.between(-1, 1)}}));
    default: {
      Integers perm(n);
      std::iota(perm.begin(), perm.end(), 0);
      for (std::size_t i = n; i > 1; --i)
        std::swap(perm[i - 1], perm[static_cast<std::size_t>(dice_.below(static_cast<std::int64_t>(i)))]);
      return keep(add("Transpose", {x}, {{"perm", perm}}));
    }
  }
}

void Composer::cut() {
  const ValueId x = any();
  const std::int64_t axis = axis_of(x), d = shape(x)[static_cast<std::size_t>(axis)];
  if (dice_.chance(0.5)) {
    const std::int64_t begin = dice_.below(std::max<std::int64_t>(d, 1)), step = dice_.of<std::int64_t>({1, 1, 2, -1});
    const std::int64_t end = step > 0 ? dice_.between(begin, d) : -dice_.between(1, d + 1) - 1;
    return keep(add(
        "Slice", {x},
        {{"starts", Integers{begin}}, {"ends", Integers{end}}, {"axes", Integers{axis}}, {"steps", Integers{step}}}));
  }
  Integers sizes;
  for (std::int64_t left = d; left > 0; left -= sizes.back()) sizes.push_back(dice_.between(1, left));
  if (sizes.empty()) return;
  const std::vector<ValueId> pieces = add_all(
      "Split", {x}, {{"axis", dice_.chance(0.3) ? axis - static_cast<std::int64_t>(rank(x)) : axis}, {"split", sizes}},
      sizes.size());
  for (ValueId piece : pieces)
    if (dice_.chance(0.6)) keep(piece);  // a piece that is not kept has no reader
}

void Composer::join() {
  const ValueId x = any();
  const std::int64_t axis = axis_of(x);
  std::vector<ValueId> parts = {x};
  for (int i = 0; i < 2; ++i) {
    Shape piece = shape(x);
    if (dice_.chance(0.5)) piece[static_cast<std::size_t>(axis)] = dim();
    ValueId part = dice_.chance(0.3) ? x : parameter(piece);
    for (ValueId other : pool_)
      if (rank(other) == rank(x) && dice_.chance(0.2) && shape(other) == shape(x)) part = other;
    parts.push_back(part);
  }
  if (dice_.chance(0.3)) std::swap(parts[0], parts[1]);
  keep(add("Concat", parts, {{"axis", axis}}));
}

void Composer::pad() {
  const ValueId x = any();
  Integers pads(2 * rank(x), 0);
  for (std::int64_t &p : pads)
    if (dice_.chance(0.3)) p = dice_.between(0, 2);
  const char *mode = dice_.chance(0.7) ? "constant" : dice_.of<const char *>({"reflect", "edge"});
  Attributes attributes = {{"pads", pads}};
  if (std::string(mode) != "constant")
    attributes.set("mode", std::string(mode));
  else if (dice_.chance(0.5))
    attributes.set("value", 0.25);
  keep(add("Pad", {x}, attributes));
}

void Composer::reduce() {
  ValueId x = any();
  const std::string op = dice_.of<const char *>({"ReduceSum", "ReduceSum", "ReduceMean", "ReduceMean", "ReduceMax",
                                                 "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
                                                 "ReduceLogSum", "ReduceLogSumExp"});
  if (op == "ReduceLogSum" || op == "ReduceL2") x = positive(x);
  Attributes attributes = {{"keepdims", dice_.below(2)}};
  Integers axes;
  for (std::size_t i = 0; i < rank(x); ++i)
    if (dice_.chance(0.5))
      axes.push_back(static_cast<std::int64_t>(i) - (dice_.chance(0.3) ? static_cast<std::int64_t>(rank(x)) : 0));
  if (!axes.empty()) attributes.set("axes", axes);
  if (axes.empty() && dice_.chance(0.2)) attributes.set("noop_with_empty_axes", std::int64_t{1});
  const ValueId y = add(op, {x}, attributes);
  keep(y);
  if (attributes.integer("keepdims", 1) != 0 && dice_.chance(0.5))
    keep(add(dice_.of<const char *>({"Add", "Sub", "Mul"}), {x, y}));
}

void Composer::along_axis() {
  const ValueId x = any();
  if (dice_.chance(0.7))
    return keep(add("CumSum", {x}, {{"axis", axis_of(x)}, {"exclusive", dice_.below(2)}, {"reverse", dice_.below(2)}}));
  const std::int64_t axis = axis_of(x);
  const ValueId place =
      add(dice_.of<const char *>({"ArgMax", "ArgMin"}), {x}, {{"axis", axis}, {"keepdims", std::int64_t{1}}});
  keep(add("GatherElements", {x, place}, {{"axis", axis}}));
}

void Composer::top_k() {
  const ValueId x = any();
  const std::int64_t axis = axis_of(x), d = shape(x)[static_cast<std::size_t>(axis)];
  const std::vector<ValueId> made =
      add_all("TopK", {x}, {{"axis", axis}, {"k", dice_.between(d > 0 ? 1 : 0, d)}, {"largest", dice_.below(2)}}, 2);
  if (dice_.chance(0.8)) keep(made[0]);
  if (dice_.chance(0.4)) keep(add("GatherElements", {x, made[1]}, {{"axis", axis}}));
}

void Composer::softmax() {
  const ValueId x = any();
  keep(add(dice_.of<const char *>({"Softmax", "LogSoftmax"}), {x},
           {{"axis", axis_of(x) - (dice_.chance(0.5) ? static_cast<std::int64_t>(rank(x)) : 0)}}));
}

void Composer::gather() {
  const bool from_data = dice_.chance(0.5);
  switch (dice_.below(3)) {
    case 0: {  // rows of an embedding table, or slices of a value along any axis
      const ValueId table = dice_.chance(0.5) ? parameter({dim() + 1, dim()}) : any();
      const std::int64_t axis = axis_of(table);
      const Shape places = random_shape(static_cast<std::size_t>(dice_.between(0, 2)));
      return keep(add("Gather", {table, indices(places, shape(table)[static_cast<std::size_t>(axis)], from_data)},
                      {{"axis", axis}}));
    }
    case 1: {
      const ValueId x = any();
      const std::int64_t axis = axis_of(x);
      Shape places = shape(x);
      for (std::int64_t &d : places) d = dice_.between(std::min<std::int64_t>(d, 1), d);
      places[static_cast<std::size_t>(axis)] = dim();
      return keep(add("GatherElements", {x, indices(places, shape(x)[static_cast<std::size_t>(axis)], from_data)},
                      {{"axis", axis}}));
    }
    default: {
      const ValueId x = of_rank(static_cast<std::size_t>(dice_.between(2, 3)));
      const std::int64_t depth = dice_.between(1, 2),
                         least = *std::min_element(shape(x).begin(), shape(x).begin() + depth);
      return keep(add("GatherND", {x, indices({dice_.between(1, 3), depth}, least, from_data)}));
    }
  }
}

void Composer::scatter() {
  const ValueId x = any();
  const bool from_data = dice_.chance(0.5);
  const std::string reduction = dice_.of<const char *>({"none", "add", "add"});
  // The order of writes to one element is undefined, so without a reduction each element is written at most once.
  if (dice_.chance(0.5)) {
    const std::int64_t axis = axis_of(x), d = shape(x)[static_cast<std::size_t>(axis)];
    Shape places = shape(x);
    places[static_cast<std::size_t>(axis)] = reduction == "none" ? std::min<std::int64_t>(d, 1) : dim();
    const ValueId updates = parameter(places);
    return keep(add("ScatterElements", {x, indices(places, d, from_data), updates},
                    {{"axis", axis}, {"reduction", reduction}}));
  }
  const std::int64_t rows = reduction == "none" ? 1 : dice_.between(1, 3);
  Shape updates = shape(x);
  updates[0] = rows;
  keep(add("ScatterND", {x, indices({rows, 1}, shape(x)[0], from_data), parameter(updates)},
           {{"reduction", reduction}}));
}

void Composer::one_hot() {
  const std::int64_t depth = dice_.between(2, 5), width = dim();
  const ValueId labels = indices({dim()}, depth, true);
  const ValueId values = made_.graph.add_constant("values", Array::from_doubles({floats_, {2}}, {0, 1}));
  const ValueId hot = add("OneHot", {labels, integers({depth}, {}), values});
  keep(add("MatMul", {hot, parameter({depth, width})}));
}

}  // namespace protrain::test
