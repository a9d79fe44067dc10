// Splits vectors that exporters merged. Tells the layer of a node by the nearest matrices that data passes before and
// after the node.
#include "passes/parameters/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "graph/scope.h"
#include "passes/parameters/formula.h"
#include "passes/parameters/load.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Split;
using graph::ValueId;

constexpr std::size_t kMostVisited = 256;  // nodes visited in the search for the nearest matrix

// A stored matrix, and a node that applies it to data.
using Application = std::pair<ValueId, NodeId>;
using Applications = std::set<Application>;

// True for nodes that do not count in distances between nodes, because they only move or cast elements.
bool has_no_length(const Node &node) {
  return one_of(node.op, {"Identity", "Reshape", "Transpose", "Cast", "Squeeze", "Unsqueeze", "Flatten"});
}

// True for operators that may take a vector of weights, such as a bias or a scale, as an input.
bool holds_vectors(const Node &node) {
  return one_of(node.op, {"Add", "Sub", "Mul", "Gemm", "Conv"}) || node.op.ends_with("Normalization") ||
         node.op.starts_with("com.microsoft::");
}

// Finds the stored matrices that data passes shortly before and after a node. The matrices near a node identify the
// layer that it belongs to. Exporters merge equal vectors of different layers. The layers of a vector's readers show
// which readers shared a vector before the merge.
class Neighbours {
 public:
  explicit Neighbours(const Graph &graph)
      : graph_(graph), readers_(graph.consumers()), data_(graph.value_count(), false), matrices_(graph.value_count()) {
    for (std::size_t i = 0; i < graph.value_count(); ++i) {
      const graph::Value &value = graph.values()[i];
      const bool matrix = value.origin == Origin::initializer && value.type.shape.size() >= 2;
      data_[i] = value.origin == Origin::input;
      matrices_[i] = matrix ? static_cast<ValueId>(i) : ValueId::none;
    }
    for (const Node &node : graph.nodes()) follow(node);
  }

  bool on_data(const Node &node) const {
    return std::ranges::any_of(node.inputs, [&](ValueId in) { return in != ValueId::none && data_[index(in)]; });
  }

  // The node `reader` reads stored values, such as parameters. Follows these values, and what is computed from stored
  // values alone, to the nodes that combine them with values that depend on the model's inputs. Returns these nodes:
  // `reader` itself, or nodes after it.
  std::set<NodeId> meetings(NodeId reader) const {
    std::set<NodeId> found, seen = {reader};
    for (std::vector<NodeId> pending = {reader}; !pending.empty() && seen.size() < kMostVisited;) {
      const NodeId at = pending.back();
      pending.pop_back();
      if (on_data(graph_.node(at)))
        found.insert(at);
      else
        for (NodeId next : after(at))
          if (seen.insert(next).second) pending.push_back(next);
    }
    return found;
  }

  Applications before_it(NodeId from) const {
    return nearest(from, [this](NodeId at) { return before(at); });
  }
  Applications after_it(NodeId from) const {
    return nearest(from, [this](NodeId at) { return after(at); });
  }
  // True if a vector that meets data in `at` is a bias: `at` is a product, or an Add to a product's direct result.
  bool is_bias(NodeId at) const {
    if (products_.contains(at)) return true;
    std::vector<NodeId> above = before(at);
    while (above.size() == 1 && has_no_length(graph_.node(above[0])) && !products_.contains(above[0]))
      above = before(above[0]);
    return graph_.node(at).op == "Add" && above.size() == 1 && products_.contains(above[0]);
  }

 private:
  void follow(const Node &node) {
    const bool data = on_data(node);
    const auto id = static_cast<NodeId>(&node - graph_.nodes().data());
    ValueId matrix = ValueId::none;
    for (ValueId in : node.inputs)
      if (in != ValueId::none && !data_[index(in)] && matrices_[index(in)] != ValueId::none)
        matrix = matrices_[index(in)];
    // Records a product of data with a matrix. Leaves out nodes that look up rows of a table, because models read a
    // table in places that share nothing else, such as encoder and decoder.
    const bool reads_tables = one_of(node.op, {"Gather", "com.microsoft::EmbedLayerNormalization"});
    if (data && matrix != ValueId::none && !reads_tables) products_.emplace(id, matrix);
    for (ValueId out : node.outputs) {
      if (out == ValueId::none) continue;
      data_[index(out)] = data;
      if (!data) matrices_[index(out)] = matrix;
    }
  }

  // before() returns the nodes that compute data for `at`. after() returns the nodes that read the results of `at`.
  // Both leave out Shape and Size.
  std::vector<NodeId> before(NodeId at) const {
    std::vector<NodeId> found;
    for (ValueId in : graph_.node(at).inputs) {
      if (in == ValueId::none || !data_[index(in)]) continue;
      const NodeId made_by = graph_.value(in).producer;
      if (made_by != NodeId::none && !one_of(graph_.node(made_by).op, {"Shape", "Size"})) found.push_back(made_by);
    }
    return found;
  }
  std::vector<NodeId> after(NodeId at) const {
    std::vector<NodeId> found;
    for (ValueId out : graph_.node(at).outputs) {
      if (out == ValueId::none) continue;
      for (NodeId reader : readers_[index(out)])
        if (!one_of(graph_.node(reader).op, {"Shape", "Size"})) found.push_back(reader);
    }
    return found;
  }

  template <typename Next>
  Applications nearest(NodeId from, const Next &next) const {
    Applications found;
    std::set<NodeId> seen = {from};
    std::vector<NodeId> level = {from};
    while (!level.empty() && found.empty() && seen.size() < kMostVisited) {
      std::vector<NodeId> further;
      while (!level.empty()) {
        const NodeId at = level.back();
        level.pop_back();
        if (const auto product = products_.find(at); product != products_.end()) {
          found.emplace(product->second, at);
          continue;
        }
        for (NodeId other : next(at))
          if (seen.insert(other).second) (has_no_length(graph_.node(at)) ? level : further).push_back(other);
      }
      level = std::move(further);
    }
    return found;
  }

  const Graph &graph_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> data_;         // per value: depends on an input
  std::vector<ValueId> matrices_;  // per value: the stored matrix that it is made from, or none
  std::map<NodeId, ValueId> products_;
};

// One read of a vector: `node` reads it as input number `input`. That node, or nodes after it, combine the vector with
// activations, for example by an Add. `before` and `after` are the nearest products with stored matrices that the
// activations pass before and after they are combined with the vector.
struct Reading {
  NodeId node;
  std::size_t input;
  Applications before, after;
};

// Groups the readings that read one and the same vector in the model that was exported. The exporter merges equal
// vectors, so one vector of the file may stand for several of that model. A layer that is applied several times is
// known by its matrix, because several nodes apply it. So two readings are in one group if such a matrix comes before
// both of them, or after both. Returns for each reading the first reading of its group.
std::vector<std::size_t> group(const std::vector<Reading> &readings) {
  std::vector<std::size_t> first(readings.size());
  std::iota(first.begin(), first.end(), 0);
  const auto find = [&](std::size_t i) {
    while (first[i] != i) i = first[i] = first[first[i]];
    return i;
  };
  for (const auto side : {&Reading::before, &Reading::after}) {
    std::map<ValueId, std::set<NodeId>> applied;
    std::map<ValueId, std::vector<std::size_t>> beside;
    for (std::size_t i = 0; i < readings.size(); ++i)
      for (const auto &[matrix, node] : readings[i].*side) {
        applied[matrix].insert(node);
        beside[matrix].push_back(i);
      }
    for (const auto &[matrix, members] : beside) {
      if (applied[matrix].size() < 2) continue;
      for (std::size_t i : members) {
        const std::size_t a = find(members.front()), b = find(i);
        first[std::max(a, b)] = std::min(a, b);
      }
    }
  }
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = find(i);
  return first;
}

// Returns the module of a node by its name. "/layers.0/norm_1/Mul" is of "layers.0.norm", which is used a second time.
std::string used_module(const Node &node) {
  std::string module = graph::module_of_scope(node.name);
  const std::size_t digits = module.find_last_not_of("0123456789");
  if (digits != std::string::npos && digits + 1 < module.size() && module[digits] == '_') module.resize(digits);
  return module;
}

// Joins the readings by nodes of the module that the vector's name belongs to, because they read one vector.
void join_own_module(const Graph &graph, const std::string &vector, const std::vector<Reading> &readings,
                     std::vector<std::size_t> &first) {
  const std::string own = vector.substr(0, std::min(vector.rfind('.'), vector.size()));
  std::set<std::size_t> groups;
  for (std::size_t i = 0; i < readings.size(); ++i)
    if (own != vector && used_module(graph.node(readings[i].node)) == own) groups.insert(first[i]);
  for (std::size_t &group : first)
    if (groups.contains(group)) group = *groups.begin();
}

// Splits each group of readings in two: those that read the vector as the mean or variance of a normalization, and all
// others. first[i] is the first reading in the group of reading i; the function updates it.
void part_statistics(const Graph &graph, const std::vector<Reading> &readings, std::vector<std::size_t> &first) {
  const auto statistic = [&](std::size_t i) { return is_statistic(graph.node(readings[i].node), readings[i].input); };
  std::map<std::pair<std::size_t, bool>, std::size_t> parts;
  const std::vector<std::size_t> groups = first;
  for (std::size_t i = 0; i < first.size(); ++i)
    first[i] = parts.emplace(std::pair(groups[i], statistic(i)), i).first->second;
}

std::vector<Reading> readings_of(const Graph &graph, const Neighbours &neighbours, ValueId id,
                                 const std::vector<NodeId> &readers) {
  std::vector<Reading> readings;
  std::set<NodeId> met;
  for (NodeId reader : readers) {
    if (!met.insert(reader).second) continue;
    const std::set<NodeId> places = neighbours.meetings(reader);
    const auto holds = [&](NodeId place) { return holds_vectors(graph.node(place)); };
    if (places.empty() || !std::ranges::all_of(places, holds)) continue;
    const std::vector<ValueId> &inputs = graph.node(reader).inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != id) continue;
      Reading &reading = readings.emplace_back(Reading{.node = reader, .input = i, .before = {}, .after = {}});
      for (NodeId place : places) {
        reading.before.merge(neighbours.before_it(place));
        // A bias belongs to the product before it, so the matrices after a bias do not count. If they counted, the
        // biases of queries and keys could be taken for one vector, because the same matrix, the attention's output
        // projection, comes after both.
        if (!neighbours.is_bias(place)) reading.after.merge(neighbours.after_it(place));
      }
    }
  }
  return readings;
}

bool may_be_merged(const graph::Value &value, std::size_t readers) {
  const Shape &shape = value.type.shape;
  return value.origin == Origin::initializer && is_float(value.type.dtype) && readers > 1 && !shape.empty() &&
         shape.back() > 1 && element_count(shape) == shape.back();
}

// Two names without the words at their ends that are the same: "layers.1" and "layers.0" of "layers.1.norm.weight" and
// "layers.0.norm.weight".
std::pair<std::string, std::string> modules_apart(std::string_view name, std::string_view other) {
  const auto last_word = [](std::string_view text) { return text.substr(text.rfind('.') + 1); };
  const auto shorten = [](std::string_view &text) { text = text.substr(0, std::min(text.rfind('.'), text.size())); };
  while (name.find('.') != std::string_view::npos && other.find('.') != std::string_view::npos &&
         last_word(name) == last_word(other)) {
    shorten(name);
    shorten(other);
  }
  return {std::string(name), std::string(other)};
}

// Returns the Identity nodes, by their outputs, that stand for tensors of their own. The exporter also writes an
// Identity if two tensors share their memory. Numbers that are all equal were merged because they are equal: many fresh
// tensors are zeros or ones. Other numbers are equal in copies of a module, and then in several of its tensors.
std::set<std::string> own_tensors(const std::map<std::string, graph::MergedTensor> &merged,
                                  const LoadInitializer &load) {
  std::set<std::string> own;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> copied;
  std::map<std::string, bool> uniform;
  for (const auto &[output, tensor] : merged) {
    const auto [known, fresh] = uniform.try_emplace(tensor.original);
    if (fresh) {
      const graph::Array array = load_if_there(load, tensor.original);
      known->second = array.dtype() != DType::none && is_uniform(array);
    }
    if (known->second)
      own.insert(output);
    else
      copied[modules_apart(tensor.name, tensor.original_name)].push_back(output);
  }
  for (const auto &[modules, outputs] : copied)
    if (outputs.size() > 1) own.insert(outputs.begin(), outputs.end());
  return own;
}

// Turns the outputs of these Identity nodes of initializers into initializers.
std::vector<Split> make_initializers(Graph &graph, const std::set<std::string> &own) {
  std::vector<Split> splits;
  if (own.empty()) return splits;
  std::vector<Node> others;
  for (const Node &node : graph.nodes()) {
    const ValueId made = node.outputs.at(0);
    if (node.op != "Identity" || made == ValueId::none || !own.contains(graph.value(made).name)) {
      others.push_back(node);
      continue;
    }
    const graph::Value &original = graph.value(node.inputs.at(0));
    splits.push_back({.name = graph.value(made).name, .original = original.name, .readers = {}});
    graph.value(made).type = original.type;
    graph.value(made).origin = Origin::initializer;
    graph.value(made).producer = NodeId::none;
  }
  graph.set_nodes(std::move(others));
  return splits;
}

// Makes nodes that read an Identity of an initializer read the initializer itself. PyTorch's older exporter stores only
// one of several equal initializers and writes each of the others as an Identity of the stored one.
void read_past_identities(Graph &graph) {
  std::map<ValueId, ValueId> stored;  // the initializer, by the output of an Identity of it
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    Node &node = graph.node(static_cast<NodeId>(n));
    for (ValueId &in : node.inputs)
      if (const auto found = stored.find(in); found != stored.end()) in = found->second;
    if (node.op != "Identity" || node.inputs.size() != 1 || node.outputs.size() != 1) continue;
    if (node.inputs[0] != ValueId::none && graph.value(node.inputs[0]).origin == Origin::initializer)
      stored.emplace(node.outputs[0], node.inputs[0]);
  }
}

std::string output_of(const Graph &graph, NodeId node) {
  for (ValueId out : graph.node(node).outputs)
    if (out != ValueId::none) return graph.value(out).name;
  return "";
}

}  // namespace

bool is_statistic(const Node &node, std::size_t input) { return node.op == "BatchNormalization" && input >= 3; }

std::vector<Split> split_merged(Graph &graph, const LoadInitializer &load,
                                const std::map<std::string, graph::MergedTensor> &merged) {
  std::vector<Split> splits = make_initializers(graph, own_tensors(merged, load));
  read_past_identities(graph);
  if (!merged.empty()) return splits;
  const Neighbours neighbours(graph);
  const std::vector<std::vector<NodeId>> readers = graph.consumers();
  const std::size_t values = graph.value_count();
  for (std::size_t v = 0; v < values; ++v) {
    const auto id = static_cast<ValueId>(v);
    if (!may_be_merged(graph.value(id), readers[v].size())) continue;
    const std::vector<Reading> readings = readings_of(graph, neighbours, id, readers[v]);
    std::vector<std::size_t> first = group(readings);
    join_own_module(graph, graph.value(id).name, readings, first);
    part_statistics(graph, readings, first);
    if (std::ranges::all_of(first, [](std::size_t i) { return i == 0; })) continue;
    const std::string original = graph.value(id).name;  // a copy, because adding values moves them
    if (load(original).compact().stored_count() != 1) continue;
    std::map<std::size_t, std::size_t> made;  // index into `splits`, by the group's first member
    for (std::size_t i = 0; i < readings.size(); ++i) {
      if (first[i] == 0) continue;
      const auto [at, fresh] = made.emplace(first[i], splits.size());
      if (fresh) {
        const std::string name = fmt::format("{}/{}", original, made.size() + 1);
        const ValueId copy =
            graph.add_value({.name = name, .type = graph.value(id).type, .origin = Origin::initializer, .array = {}});
        splits.push_back({.name = graph.value(copy).name, .original = original, .readers = {}});
      }
      Split &split = splits[at->second];
      split.readers.push_back({.output = output_of(graph, readings[i].node), .input = readings[i].input});
      graph.node(readings[i].node).inputs[readings[i].input] = graph.find(split.name);
    }
  }
  return splits;
}

}  // namespace protrain::passes
