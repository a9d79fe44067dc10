// Finds sizes for symbolic dims by trial. First gives all dims guessed sizes, and infers the graph's types. The first
// node whose inputs do not fit together is called a misfit. The inputs of this node show which sizes would fit. Tries
// these sizes for each dim that changes one of the node's inputs. Takes a size with which inference gets past the node,
// and infers the types again.
#include "draft/dims.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "draft/batch.h"
#include "draft/past.h"
#include "passes/canonical/node_description.h"

namespace protrain::draft {

namespace {

using onnx_import::DimBindings;
using onnx_import::InputValues;
using passes::NodeDescription;
using By = DimSize::By;

// The sizes that are guessed first: large enough for realistic shapes, small enough that inference costs little.
constexpr std::int64_t kBatch = 2, kDim = 16, kImage = 224;
constexpr std::int64_t kLargest = 1 << 16;
// wanted_sizes() returns no size above kLargestSize, so that the product of a size and a dim does not overflow.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;
// Limits for the whole search: the number of nodes whose types are inferred, and the number of operations on constants.
constexpr double kMostNodes = 2e6, kMostWork = 1 << 30;
constexpr int kMostRounds = 16;  // the most changes of guessed sizes

// Dims that get the same size: a single dim, or the sides of an image.
using DimGroup = std::vector<std::string>;

// A size that a node sees: the length of one axis of an input, or the element count of the input if `axis` is empty.
struct NodeSize {
  std::size_t input;
  std::optional<std::size_t> axis;
};

std::optional<std::int64_t> size_at(const NodeDescription &seen, const NodeSize &at) {
  if (at.input >= seen.inputs.size()) return std::nullopt;
  const graph::Type &type = seen.inputs[at.input].type;
  if (type.dtype == DType::none) return std::nullopt;
  if (!at.axis) return element_count(type.shape);
  return *at.axis < type.shape.size() ? std::optional(type.shape[*at.axis]) : std::nullopt;
}

std::vector<NodeSize> node_sizes(const NodeDescription &seen) {
  std::vector<NodeSize> sizes;
  for (std::size_t i = 0; i < seen.inputs.size(); ++i) {
    for (std::size_t axis = 0; axis < seen.inputs[i].type.shape.size(); ++axis) sizes.push_back({i, axis});
    if (seen.op == "Reshape") sizes.push_back({i, std::nullopt});
  }
  return sizes;
}

// A size that the node may accept, and the input from which this size was derived.
struct WantedSize {
  std::int64_t size;
  std::size_t input;
};

// Returns sizes that the node may accept. They are the dims of all its inputs, and for a convolution also these dims
// times its number of groups. If the values of an input are known, as those of a shape are, then the values, their
// product and their sum are such sizes too.
std::vector<WantedSize> wanted_sizes(const NodeDescription &seen) {
  std::vector<WantedSize> sizes;
  std::set<std::int64_t> known;
  const auto add = [&](std::int64_t size, std::size_t input) {
    if (size > 0 && size <= kLargestSize && known.insert(size).second) sizes.push_back({size, input});
  };
  const std::int64_t groups = seen.attributes.integer("group", 1);
  for (std::size_t i = 0; i < seen.inputs.size(); ++i) {
    for (const std::int64_t dim : seen.inputs[i].type.shape) {
      add(dim, i);
      if (groups > 1 && dim > 0 && groups <= kLargestSize / dim) add(dim * groups, i);
    }
    std::int64_t product = 1, sum = 0;
    for (const std::int64_t value : seen.inputs[i].values) {
      add(value, i);
      sum += std::clamp<std::int64_t>(value, 0, kLargest);
      if (value > 0 && product < kLargestSize / value) product *= value;
    }
    if (seen.inputs[i].values.empty()) continue;
    add(product, i);
    add(sum, i);
  }
  return sizes;
}

// Returns the roundest number from `low` to `high`. This is the number that can be halved most often without a
// remainder, such as 8 from the range 5 to 11.
std::int64_t roundest(std::int64_t low, std::int64_t high) {
  for (std::int64_t step = std::int64_t{1} << 40; step > 1; step /= 2)
    if (const std::int64_t multiple = (low + step - 1) / step * step; multiple <= high) return multiple;
  return low;
}

bool is_further(const NodeDescription &then, const NodeDescription &misfit) {
  return !then.error || then.position > misfit.position;
}

struct Candidate {
  std::size_t group;
  std::int64_t low, high;    // sizes that fit
  std::size_t progress = 0;  // number of nodes that fit with this size
  std::size_t input = 0;     // number of the node's input that asks for this size
  bool stretches = false;    // asked for size 1, which broadcasting accepts in place of any size
  std::int64_t size() const { return roundest(low, high); }
};

// Finds sizes for the dims that were not given. First guesses all of them. As long as some node's inputs do not fit
// together, gives a dim another size, so that the first such node works. If several sizes make this node work, takes
// the size with which most of the following nodes work too. The size is recorded as inferred if it is the only best
// one, and otherwise as assumed. If a whole range of sizes fits, takes the roundest number of the range.
class DimSolver {
 public:
  DimSolver(const onnx_import::Model &model, const DimBindings &given, const InputValues &values)
      : model_(model), values_(values), bound_(given) {
    for (const auto &[name, value] : given) settled_[name] = {value, By::option, ""};
    guess();
  }

  std::map<std::string, DimSize> run() {
    try {
      for (int round = 0; round < kMostRounds && !groups_.empty(); ++round) {
        const NodeDescription misfit = look(bound_);
        if (!misfit.error || !mend(misfit)) break;
      }
    } catch (const Error &error) {
      if (error.code == Code::nomem) throw;  // opening the model with these dims reports all other errors
    }
    for (const auto &[name, value] : bound_) settled_[name].value = value;
    return settled_;
  }

 private:
  void guess();
  std::set<std::string> sample_dims() const;
  NodeDescription look(const DimBindings &dims, std::size_t until = std::numeric_limits<std::size_t>::max());
  DimBindings with(std::size_t group, std::int64_t size) const;
  std::int64_t size_of(std::size_t group) const { return bound_.at(groups_[group].front()); }
  bool mend(const NodeDescription &misfit);
  void solve(const NodeDescription &misfit, std::size_t group, std::vector<Candidate> &found);
  std::optional<Candidate> reach(const NodeDescription &misfit, std::size_t group, const NodeSize &at,
                                 std::int64_t size, bool proportional);
  std::int64_t first_of(std::size_t group, const NodeSize &at, std::size_t until, std::int64_t size);
  bool resize(const NodeDescription &misfit);
  bool is_part_of(std::size_t group, const std::vector<Candidate> &found) const;
  void take(const Candidate &candidate, const std::string &reason, bool certain);

  const onnx_import::Model &model_;
  const InputValues &values_;
  DimBindings bound_;
  std::map<std::string, DimSize> settled_;
  std::vector<DimGroup> groups_;  // groups that may still change
  double nodes_ = 0, work_ = 0;   // used by inferences so far
};

// Returns the dims that count samples: the batch's dim, and the first dim of each input that does not have the batch's
// dim, because tf2onnx gives the batch another name in each input. Leaves out a first dim that some input also
// has in a later place.
std::set<std::string> DimSolver::sample_dims() const {
  Settings bound;
  bound.constants = values_;
  const std::string batch = batch_of(inputs_of(model_, bound), {}).dim;
  std::set<std::string> found, elsewhere;
  for (const onnx_import::Input &input : model_.inputs()) {
    bool first = true, batched = false;
    for (const auto &dim : input.dims) {
      const auto *name = std::get_if<std::string>(&dim);
      if (name != nullptr && !first) elsewhere.insert(*name);
      batched = batched || (name != nullptr && *name == batch);
      first = false;
    }
    const auto *name = input.dims.empty() ? nullptr : std::get_if<std::string>(&input.dims[0]);
    if (name != nullptr && !batched) found.insert(*name);
  }
  std::erase_if(found, [&](const std::string &name) { return elsewhere.contains(name); });
  found.insert(batch);
  return found;
}

// Guesses a size for each dim that is not bound. The sides of an image are the two dims of a 4-d input that are neither
// batch nor channels. The last dim holds the channels if it is at most 4, and otherwise the second dim does. Dims that
// count earlier tokens get size 0.
void DimSolver::guess() {
  for (const auto &[name, input] : past_dims(model_)) bound_.emplace(name, 0);
  std::set<std::string> sides;
  for (const onnx_import::Input &input : model_.inputs()) {
    if (input.dims.size() != 4 || !is_float(input.dtype) || holds_past(input)) continue;
    const auto *last = std::get_if<std::int64_t>(&input.dims[3]);
    const std::size_t first = last != nullptr && *last <= 4 ? 1 : 2;
    DimGroup image;
    for (std::size_t axis = first; axis < first + 2; ++axis)
      if (const auto *name = std::get_if<std::string>(&input.dims[axis]); name != nullptr && !bound_.contains(*name))
        if (sides.insert(*name).second) image.push_back(*name);
    if (image.size() > 1) groups_.push_back(image);
  }
  const std::set<std::string> samples = sample_dims();
  for (const std::string &name : model_.symbolic_dims()) {
    if (bound_.contains(name)) continue;
    groups_.push_back({name});
    bound_[name] = sides.contains(name) ? kImage : samples.contains(name) ? kBatch : kDim;
  }
}

NodeDescription DimSolver::look(const DimBindings &dims, std::size_t until) {
  graph::Graph graph = model_.graph(dims, values_);
  nodes_ += static_cast<double>(graph.node_count());
  require(nodes_ <= kMostNodes && work_ <= kMostWork, Code::limit, "", "computing the dims takes too many steps");
  NodeDescription seen = passes::describe_node(std::move(graph), model_.bodies(), until);
  work_ += seen.work;
  nodes_ += static_cast<double>(seen.inserted);
  return seen;
}

DimBindings DimSolver::with(std::size_t group, std::int64_t size) const {
  DimBindings dims = bound_;
  for (const std::string &name : groups_[group]) dims[name] = size;
  return dims;
}

// True if the group's dim is one side of an image, and `found` already has a size for both sides together. Such a side
// is not tried alone, because images are assumed to be square. Ignores candidates of size 1, because broadcasting
// accepts size 1 in place of any size.
bool DimSolver::is_part_of(std::size_t group, const std::vector<Candidate> &found) const {
  return std::ranges::any_of(found, [&](const Candidate &candidate) {
    return candidate.group != group && !candidate.stretches &&
           std::ranges::count(groups_[candidate.group], groups_[group].front()) > 0;
  });
}

bool DimSolver::mend(const NodeDescription &misfit) {
  std::vector<Candidate> found;
  for (std::size_t group = 0; group < groups_.size(); ++group)
    if (!is_part_of(group, found)) solve(misfit, group, found);
  if (found.empty()) return resize(misfit);
  const auto merit = [](const Candidate &candidate) { return std::pair(candidate.progress, !candidate.stretches); };
  const auto best = std::ranges::max_element(found, {}, merit);
  const auto rivals = std::ranges::count_if(found, [&](const Candidate &other) {
    return merit(other) == merit(*best) && (other.group != best->group || other.size() != best->size());
  });
  const NodeDescription::Input &input = misfit.inputs.at(best->input);
  std::string reason = fmt::format("{} at {}, where {} is {}", misfit.op, misfit.name, input.name, to_text(input.type));
  if (!input.values.empty()) reason += fmt::format(" of {}", to_text(Shape(input.values)));
  if (best->low != best->high) reason += fmt::format("; {} to {} fit", best->low, best->high);
  take(*best, reason, rivals == 0);
  return true;
}

// Adds to `found` those sizes of the group's dims with which the node `misfit` works. `misfit` is the first node that
// fails with the present sizes. Leaves out a size if twice that size works too. In that case the node asks for no
// particular size, and the present size is only too small.
void DimSolver::solve(const NodeDescription &misfit, std::size_t group, std::vector<Candidate> &found) {
  const std::int64_t now = size_of(group);
  const NodeDescription twice = look(with(group, 2 * now), misfit.position);
  if (twice.position < misfit.position) return;
  std::set<std::int64_t> tried = {now};
  for (const NodeSize &at : node_sizes(misfit)) {
    const auto before = size_at(misfit, at), after = size_at(twice, at);
    if (!before || !after || *before == *after) continue;
    for (const WantedSize &wanted : wanted_sizes(misfit)) {
      if ((wanted.input == at.input && at.axis) || wanted.size == *before) continue;
      std::optional<Candidate> candidate = reach(misfit, group, at, wanted.size, *after == 2 * *before);
      if (!candidate || !tried.insert(candidate->size()).second) continue;
      const NodeDescription then = look(with(group, candidate->size()));
      if (!is_further(then, misfit) || is_further(look(with(group, 2 * candidate->high)), misfit)) continue;
      candidate->progress = then.error ? then.position : std::numeric_limits<std::size_t>::max();
      candidate->input = wanted.input;
      candidate->stretches = wanted.size == 1;
      found.push_back(*candidate);
    }
  }
}

// Finds the smallest size of the group's dims with which node number `until` sees at least `size` at the place `at` in
// its inputs. Returns kLargest if no size below kLargest is large enough. Searches by bisection, because the sizes that
// a node sees grow with the dims.
std::int64_t DimSolver::first_of(std::size_t group, const NodeSize &at, std::size_t until, std::int64_t size) {
  const auto enough = [&](std::int64_t dim) {
    const NodeDescription seen = look(with(group, dim), until);
    return seen.position == until && size_at(seen, at).value_or(0) >= size;
  };
  std::int64_t high = 1;
  while (high < kLargest && !enough(high)) high *= 2;
  std::int64_t low = high / 2;  // not enough
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

std::optional<Candidate> DimSolver::reach(const NodeDescription &misfit, std::size_t group, const NodeSize &at,
                                          std::int64_t size, bool proportional) {
  const auto is_reached = [&](std::int64_t dim) {
    if (dim < 1) return false;
    const NodeDescription seen = look(with(group, dim), misfit.position);
    return seen.position == misfit.position && size_at(seen, at) == size;
  };
  const std::int64_t now = size_of(group), before = size_at(misfit, at).value_or(0);
  if (proportional) {  // the common case
    const std::int64_t dim = now * size % before == 0 ? now * size / before : 0;
    if (dim == 0 || dim > kLargest || !is_reached(dim)) return std::nullopt;
    if (!is_reached(dim - 1) && !is_reached(dim + 1)) return Candidate{.group = group, .low = dim, .high = dim};
  }
  const std::int64_t low = first_of(group, at, misfit.position, size);
  if (!is_reached(low)) return std::nullopt;
  return Candidate{
      .group = group, .low = low, .high = std::max(low, first_of(group, at, misfit.position, size + 1) - 1)};
}

// Tries other sizes if no size among the inputs of the node `misfit` makes this node work. For one group of dims after
// the other, doubles the group's size until the node works. If no doubled size works, halves the group's size instead.
// Keeps the first size that works. Returns false if no size of any group works.
bool DimSolver::resize(const NodeDescription &misfit) {
  const auto works = [&](std::size_t group, std::int64_t size) { return is_further(look(with(group, size)), misfit); };
  for (std::size_t group = 0; group < groups_.size(); ++group)
    for (const bool up : {true, false})
      for (std::int64_t size = size_of(group); size > 1 && size < kLargest;) {
        size = up ? size * 2 : size / 2;
        if (!works(group, size)) continue;
        take({.group = group, .low = size, .high = size},
             fmt::format("{} at {} works with {} {}", misfit.op, misfit.name, size, up ? "and more" : "and less"),
             false);
        return true;
      }
  return false;
}

void DimSolver::take(const Candidate &candidate, const std::string &reason, bool certain) {
  const DimGroup group = groups_[candidate.group];
  for (const std::string &name : group) {
    bound_[name] = candidate.size();
    settled_[name].reason = reason;
    if (certain) settled_[name].by = By::inference;
  }
  if (!certain) return;
  std::erase_if(groups_, [&](const DimGroup &other) {
    return std::ranges::any_of(other, [&](const std::string &name) { return std::ranges::count(group, name) > 0; });
  });
}

}  // namespace

std::map<std::string, DimSize> settle_dims(const onnx_import::Model &model, const DimBindings &given,
                                           const InputValues &values) {
  return DimSolver(model, given, values).run();
}

}  // namespace protrain::draft
