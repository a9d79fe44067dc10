// Rules for operators that read between the elements of x (N, C, d...), at computed places. Along each axis, a place is
// interpolated from a few elements, called taps. A tap has a position and a weight. Each combination of one tap per
// axis is read by a Gather, with all its C channels, and multiplied by the product of the weights. The gradients of x
// and of the places follow from these nodes.
#include <fmt/format.h>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMostPlaces = 64;        // the largest sampling_ratio of a RoiAlign
constexpr std::int64_t kLargestGrid = 1 << 21;  // places, whose coordinates are constants

// A value with the operators of arithmetic, so that formulas read like formulas.
struct Number {
  Canonical *c;
  ValueId id;

  Number of(const char *op) const { return {c, c->add(op, {id})}; }
  Number with(const char *op, Number other) const { return {c, c->add(op, {id, other.id})}; }
  Number with(const char *op, double other) const { return {c, c->add(op, {id, c->scalar(c->type(id).dtype, other)})}; }
  Number clipped(double low, double high) const { return {c, c->add("Clip", {id}, {{"min", low}, {"max", high}})}; }
  // Returns the value where x lies in [low, high], and 0 elsewhere.
  Number between(Number x, double low, double high) const {
    const Number inside = x.with("GreaterOrEqual", low).with("And", x.with("LessOrEqual", high));
    return {c, c->add("Where", {inside.id, id, c->scalar(c->type(id).dtype, 0)})};
  }
  Number cast(DType to) const { return {c, c->add("Cast", {id}, {{"to", std::string(name_of(to))}})}; }
};
Number operator+(Number a, Number b) { return a.with("Add", b); }
Number operator-(Number a, Number b) { return a.with("Sub", b); }
Number operator*(Number a, Number b) { return a.with("Mul", b); }
Number operator+(Number a, double b) { return a.with("Add", b); }
Number operator-(Number a, double b) { return a.with("Sub", b); }
Number operator*(Number a, double b) { return a.with("Mul", b); }
Number operator-(double a, Number b) { return Number{b.c, b.c->scalar(b.c->type(b.id).dtype, a)} - b; }

// An element from which a place is interpolated.
struct Tap {
  Number at;      // its position along the axis, int64
  Number weight;  // a float
};

struct Sampling {
  std::string mode, padding;
  bool aligned;  // true if -1 and 1 are the centres of the outer elements, false if they are the outer edges
};

// Reflects positions at the ends of an axis until they lie inside.
Number reflected(Number x, std::int64_t length, bool aligned) {
  const double low = aligned ? 0 : -0.5, high = static_cast<double>(length) - (aligned ? 1 : 0.5), span = high - low;
  if (span == 0) return x * 0;
  const Number from_low = x - low;
  const Number within = from_low - (from_low * (1 / (2 * span))).of("Floor") * (2 * span);  // in [0, 2 span)
  return span + low - (within - span).of("Abs");
}

Number brought_inside(Number x, std::int64_t length, const Sampling &how) {
  if (how.padding == "zeros") return x;
  if (how.padding == "reflection") x = reflected(x, length, how.aligned);
  return x.clipped(0, static_cast<double>(length) - 1);
}

// Returns the tap at position x, a whole number. `how.padding` says what a tap outside of the axis reads.
Tap tap(Number x, Number weight, std::int64_t length, const Sampling &how) {
  const double last = static_cast<double>(length) - 1;
  if (how.padding == "zeros") weight = weight.between(x, 0, last);
  return {brought_inside(x, length, how).clipped(0, last).cast(DType::i64), weight};
}

// The weight of an element in cubic interpolation (Keys, 1981), by its distance d from the place: near_weight() if d is
// below 1, and far_weight() if d is from 1 to 2.
constexpr double kCubic = -0.75;
Number near_weight(Number d) { return (d * (kCubic + 2) - (kCubic + 3)) * d * d + 1; }
Number far_weight(Number d) { return ((d * kCubic - 5 * kCubic) * d + 8 * kCubic) * d - 4 * kCubic; }

std::vector<Tap> taps(Number x, std::int64_t length, const Sampling &how) {
  if (how.mode == "cubic") {
    const Number first = x.of("Floor"), past = x - first;
    return {tap(first - 1, far_weight(past + 1), length, how), tap(first, near_weight(past), length, how),
            tap(first + 1, near_weight(1 - past), length, how), tap(first + 2, far_weight(2 - past), length, how)};
  }
  x = brought_inside(x, length, how);
  if (how.mode == "nearest") {
    const Number one = {x.c, x.c->rewriter().constant(graph::Array::filled(x.c->type(x.id), 1))};
    return {tap(x.of("Round"), one, length, how)};
  }
  const Number first = x.of("Floor"), past = x - first;
  return {tap(first, 1 - past, length, how), tap(first + 1, past, length, how)};
}

// Reads x (N, C, d...) at the places that `axes` give, one list of taps for each spatial axis. `samples`, int64, says
// which of the N samples is read. The taps and `samples` broadcast to one shape P. Returns (P..., C).
Number read(Number samples, ValueId x, const std::vector<std::vector<Tap>> &axes) {
  Canonical &c = *samples.c;
  const Shape shape = c.shape(x);
  const std::int64_t elements = element_count({shape.begin() + 2, shape.end()});
  const ValueId channels_last = c.transpose(c.reshape(x, {shape[0], shape[1], elements}), {0, 2, 1});
  const ValueId table = c.reshape(channels_last, {element_count({shape[0], elements}), shape[1]});
  std::vector<Tap> corners = {{samples, {&c, ValueId::none}}};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::vector<Tap> next;
    for (const Tap &corner : corners)
      for (const Tap &one : axes[i])
        next.push_back({corner.at * static_cast<double>(shape[i + 2]) + one.at,
                        corner.weight.id == ValueId::none ? one.weight : corner.weight * one.weight});
    corners = std::move(next);
  }
  Number sum = {&c, ValueId::none};
  for (const Tap &corner : corners) {
    const Number rows = {&c, c.add("Gather", {table, corner.at.id}, {{"axis", std::int64_t{0}}})};
    Shape places = c.shape(corner.weight.id);
    places.push_back(1);
    const Number part = rows * Number{&c, c.reshape(corner.weight.id, places)};
    sum = sum.id == ValueId::none ? part : sum + part;
  }
  return sum;
}

// Returns element `i` along the last axis of x: (..., n) -> (...).
Number part_of(Canonical &c, ValueId x, std::int64_t i) {
  Shape shape = c.shape(x);
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  shape.pop_back();
  const ValueId one =
      c.add("Slice", {x}, {{"starts", Integers{i}}, {"ends", Integers{i + 1}}, {"axes", Integers{last}}});
  return {&c, c.reshape(one, shape)};
}

Sampling sampling_of(const Node &node) {
  std::string mode = node.attributes.text("mode", "linear");
  if (mode == "bilinear" || mode == "bicubic") mode.erase(0, 2);  // opset 16's names
  const std::string padding = node.attributes.text("padding_mode", "zeros");
  const bool known = (mode == "linear" || mode == "nearest" || mode == "cubic") &&
                     (padding == "zeros" || padding == "border" || padding == "reflection");
  require(known, Code::graph, node.name, "mode {} and padding_mode {} are not those of GridSample", mode, padding);
  return {mode, padding, node.attributes.integer("align_corners", 0) != 0};
}

bool grid_sample(Canonical &c, Node &node) {
  const Shape result = c.infer(node).at(0).shape, x = c.shape(node.inputs[0]);
  const Sampling how = sampling_of(node);
  const std::int64_t axes = static_cast<std::int64_t>(x.size()) - 2;
  const std::int64_t count = element_count({result.begin() + 2, result.end()});
  const ValueId grid = c.reshape(node.inputs[1], {x[0], count, axes});
  std::vector<std::vector<Tap>> all;
  for (std::int64_t i = 0; i < axes; ++i) {
    const std::int64_t length = x[static_cast<std::size_t>(i) + 2];
    const Number given = part_of(c, grid, axes - 1 - i);  // the grid names the last axis first
    const double half = static_cast<double>(length) / 2, centre = (static_cast<double>(length) - 1) / 2;
    all.push_back(taps(given * (how.aligned ? centre : half) + centre, length, how));
  }
  Integers samples(static_cast<std::size_t>(x[0]));
  std::iota(samples.begin(), samples.end(), 0);
  const Number sample = {&c, c.rewriter().constant(graph::Array::from_integers({DType::i64, {x[0], 1}}, samples))};
  const Number rows = read(sample, node.inputs[0], all);  // (N, count, C)
  c.become(node, "Reshape", {c.transpose(rows.id, {0, 2, 1})}, {{"shape", result}});
  return true;
}

// Returns the coordinate of element i on an axis of `dim` elements. The coordinates -1 and 1 are the centres of the
// outer elements if `aligned`, and the outer edges of these elements otherwise.
double coordinate(std::int64_t i, std::int64_t dim, bool aligned) {
  const auto at = static_cast<double>(i), count = static_cast<double>(dim);
  if (aligned) return dim == 1 ? 0 : 2 * at / (count - 1) - 1;
  return (2 * at + 1) / count - 1;
}

// Multiplies each affine matrix (axes, axes + 1) by a constant matrix (axes + 1, places), which holds the coordinates
// of all places. The constant's first row has the coordinates along the last axis, and its last row has ones.
bool affine_grid(Canonical &c, Node &node) {
  const Type result = c.infer(node).at(0);
  const Shape dims(result.shape.begin() + 1, result.shape.end() - 1);
  const bool aligned = node.attributes.integer("align_corners", 0) != 0;
  const std::int64_t places = element_count(dims), axes = result.shape.back();
  require(places <= kLargestGrid, Code::limit, node.name, "a grid of {} is too large", to_text(dims));
  const Type type = {result.dtype, {axes + 1, places}};
  const ValueId base = c.constant(fmt::format("grid {} {}", to_text(dims), aligned), type, [&] {
    std::vector<double> rows;
    for (std::int64_t stride = 1, axis = axes - 1; axis >= 0; stride *= dims[static_cast<std::size_t>(axis--)])
      for (std::int64_t place = 0; place < places; ++place) {
        const std::int64_t dim = dims[static_cast<std::size_t>(axis)];
        rows.push_back(coordinate(place / stride % dim, dim, aligned));
      }
    rows.resize(rows.size() + static_cast<std::size_t>(places), 1);
    return graph::Array::from_doubles(type, rows);
  });
  const ValueId grids = c.add("MatMul", {node.inputs[0], base});  // (N, axes, places)
  c.become(node, "Reshape", {c.transpose(grids, {0, 2, 1})}, {{"shape", result.shape}});
  return true;
}

// Returns the taps along one axis of R regions, as tensors of shape (R, count * each). A region has `count` output
// elements along the axis, and every element is computed from `each` places.
std::vector<Tap> region_taps(Number begin, Number end, std::int64_t count, std::int64_t each, std::int64_t length,
                             bool half_pixel) {
  Canonical &c = *begin.c;
  Number extent = end - begin;
  if (half_pixel)
    begin = begin - 0.5;
  else
    extent = extent.with("Max", 1);
  std::vector<double> parts;  // the places, as fractions of the extent
  for (std::int64_t i = 0; i < count * each; ++i)
    parts.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(count * each));
  const Type type = {c.type(begin.id).dtype, {1, count * each}};
  const Number share = {&c, c.rewriter().constant(graph::Array::from_doubles(type, parts))};
  const Number x = begin + extent * share;
  std::vector<Tap> found = taps(x, length, {"linear", "border", true});
  for (Tap &one : found) one.weight = one.weight.between(x, -1, static_cast<double>(length));
  return found;
}

// Computes each output element of a region as the mean over a grid of `sampling_ratio` x `sampling_ratio` places in
// that element's part of the region.
bool roi_align(Canonical &c, Node &node) {
  const Shape result = c.infer(node).at(0).shape, x = c.shape(node.inputs[0]);
  const std::int64_t each = node.attributes.integer("sampling_ratio", 0);
  require(each > 0 && each <= kMostPlaces, Code::unsupported, node.name,
          "sampling_ratio is {}, so the number of places depends on the regions; export with one of 1 to {}", each,
          kMostPlaces);
  require(node.attributes.text("mode", "avg") == "avg", Code::unsupported, node.name,
          "mode {} is not supported, only avg", node.attributes.text("mode", ""));
  const bool half_pixel = node.attributes.text("coordinate_transformation_mode", "half_pixel") != "output_half_pixel";
  const std::int64_t regions = result[0], height = result[2], width = result[3];
  const auto edge = [&](std::int64_t i) {
    const Number given = part_of(c, node.inputs[1], i) * node.attributes.real("spatial_scale", 1);
    return Number{&c, c.reshape(given.id, {regions, 1})};
  };
  const auto spread = [&](std::vector<Tap> along, const Shape &shape) {
    for (Tap &one : along) one = {{&c, c.reshape(one.at.id, shape)}, {&c, c.reshape(one.weight.id, shape)}};
    return along;
  };
  const std::vector<std::vector<Tap>> all = {
      spread(region_taps(edge(1), edge(3), height, each, x[2], half_pixel), {regions, height * each, 1}),
      spread(region_taps(edge(0), edge(2), width, each, x[3], half_pixel), {regions, 1, width * each})};
  const Number samples = Number{&c, c.reshape(node.inputs[2], {regions, 1, 1})}.cast(DType::i64);
  const Number rows = read(samples, node.inputs[0], all);  // (R, height * each, width * each, C)
  const ValueId apart = c.reshape(rows.id, {regions, height, each, width, each, x[1]});
  const ValueId means = c.add("ReduceMean", {apart}, {{"axes", Integers{2, 4}}, {"keepdims", std::int64_t{0}}});
  c.become(node, "Transpose", {means}, {{"perm", Integers{0, 3, 1, 2}}});
  return true;
}

}  // namespace

Rules sample_rules() { return {{"AffineGrid", affine_grid}, {"GridSample", grid_sample}, {"RoiAlign", roi_align}}; }

}  // namespace protrain::passes
