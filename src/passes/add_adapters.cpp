#include "passes/add_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/text.h"
#include "graph/scope.h"
#include "passes/canonical/canonical.h"
#include "passes/parameters/names.h"

namespace protrain::passes {

namespace {

using graph::NodeId;
using graph::Origin;

// A node that multiplies by the parameter, or looks up its rows.
struct Target {
  NodeId node = NodeId::none;
  ValueId x = ValueId::none;       // the other operand: the product's left one, or the lookup's indices
  ValueId result = ValueId::none;  // what the adapter's part is added to
  bool lookup = false;
  bool as_stored = false;  // the node multiplies by the parameter as it is stored; false: by its transpose
};

// Finds the products and lookups that read a parameter, directly or through nodes that only move or widen it.
class Targets {
 public:
  Targets(const Graph &graph, const std::vector<std::vector<NodeId>> &readers) : graph_(graph), readers_(readers) {}

  // Puts the targets of a parameter into `found`. If a reader of the parameter cannot be adapted, or if there is no
  // reader, `refusal` says so.
  void find(ValueId parameter) {
    found.clear();
    refusal.clear();
    matrix_ = {};
    follow(parameter);
    if (found.empty() && refusal.empty()) refusal = "nothing reads it";
  }

  std::vector<Target> found;
  std::string refusal;
  const Shape &matrix() const { return matrix_; }  // of the dequantised parameter, not transposed

 private:
  // A node that reads the parameter as `value`. The parameter may have been transposed or dequantised before.
  struct Read {
    NodeId node = NodeId::none;
    ValueId value = ValueId::none;
    bool swapped = false, dequantised = false;
  };

  void follow(ValueId parameter);
  std::optional<Read> passed_on(const Read &read) const;
  void arrive(NodeId id, std::size_t input, bool swapped);
  void refuse(const Node &node, const std::string &why) {
    if (refusal.empty()) refusal = node.place() + " reads it, " + why;
  }
  const Node *only_reader(ValueId value) const;
  ValueId behind_bias(ValueId product) const;

  const Graph &graph_;
  const std::vector<std::vector<NodeId>> &readers_;
  Shape matrix_;
};

bool is_float_matrix(const graph::Type &type) { return type.shape.size() == 2 && is_float(type.dtype); }

// True for a Slice that keeps the first rows and columns, such as one that cuts the padding off dequantised weights.
bool keeps_begin(const Node &node) {
  return node.op == "Slice" && std::ranges::all_of(node.attributes.integers("starts"), [](auto at) { return at == 0; });
}

// If the node only moves or widens the parameter, returns its result as the next value to follow.
std::optional<Targets::Read> Targets::passed_on(const Read &read) const {
  const Node &node = graph_.node(read.node);
  const bool float_matrix = is_float_matrix(graph_.value(read.value).type);
  Read next = read;
  next.value = node.outputs[0];
  if (node.inputs[0] != read.value) return std::nullopt;
  if (node.op == "DequantizeLinear") {
    next.dequantised = true;
    return next;
  }
  if (node.op == "Reshape" && !float_matrix && !read.dequantised) return next;
  if (node.op == "Cast" || (read.dequantised && keeps_begin(node))) return next;
  if (node.op != "Transpose" || !float_matrix) return std::nullopt;
  next.swapped = !read.swapped;
  return next;
}

void Targets::follow(ValueId parameter) {
  std::vector<Read> pending;  // the next one is the last
  const auto add_readers = [&](Read read) {
    for (const NodeId id : std::views::reverse(readers_[index(read.value)])) {
      read.node = id;
      pending.push_back(read);
    }
  };
  add_readers({.value = parameter});
  while (!pending.empty()) {
    const Read read = pending.back();
    pending.pop_back();
    const Node &node = graph_.node(read.node);
    const graph::Type &type = graph_.value(read.value).type;
    if (const auto next = passed_on(read)) {
      add_readers(*next);
    } else if (!is_float_matrix(type)) {
      refuse(node, fmt::format("and it is no matrix there, but {}", to_text(type)));
    } else {
      matrix_ = read.swapped ? Shape{type.shape[1], type.shape[0]} : type.shape;
      const auto input = std::ranges::find(node.inputs, read.value) - node.inputs.begin();
      arrive(read.node, static_cast<std::size_t>(input), read.swapped);
    }
  }
}

void Targets::arrive(NodeId id, std::size_t input, bool swapped) {
  const Node &node = graph_.node(id);
  const bool product = node.op == "MatMul" && input == 1 && node.inputs[0] != node.inputs[1];
  const bool lookup = node.op == "Gather" && input == 0 && node.attributes.integer("axis", 0) == 0 &&
                      graph_.value(node.inputs[1]).origin != Origin::parameter;
  if (!product && !lookup)
    return refuse(node, "and adapters are for the right operand of products and for tables that rows are picked from");
  const bool flipped = swapped != (product && node.attributes.integer("trans_b", 0) != 0);
  found.push_back({.node = id,
                   .x = node.inputs[product ? 0 : 1],
                   .result = product ? behind_bias(node.outputs[0]) : node.outputs[0],
                   .lookup = lookup,
                   .as_stored = !flipped});
}

const Node *Targets::only_reader(ValueId value) const {
  const std::vector<NodeId> &readers = readers_[index(value)];
  const bool output = std::ranges::find(graph_.outputs, value) != graph_.outputs.end();
  return readers.size() == 1 && !output ? &graph_.node(readers[0]) : nullptr;
}

// Returns the sum of a product and its bias. The adapter's part is added to this sum, so that fuse_bias() can still
// fuse the bias with the product. Returns the product itself if it has no bias.
ValueId Targets::behind_bias(ValueId product) const {
  ValueId at = product;
  const Node *reader = only_reader(at);
  if (reader != nullptr && reader->op == "Reshape") {
    at = reader->outputs[0];
    reader = only_reader(at);
  }
  if (reader == nullptr || reader->op != "Add") return product;
  const graph::Value &bias = graph_.value(reader->inputs[reader->inputs[0] == at ? 1 : 0]);
  const Shape &sum = graph_.value(reader->outputs[0]).type.shape;
  const bool stored = bias.origin == Origin::parameter || bias.origin == Origin::constant;
  const bool row = !bias.type.shape.empty() && bias.type.shape.back() == element_count(bias.type.shape);
  return stored && row && sum == graph_.value(at).type.shape ? reader->outputs[0] : product;
}

// Returns the module that a parameter belongs to. Exporters keep the parameter's name ("h.0.attn.weight"), or declare
// the names from which they made an initializer, or name the node after the module ("/h.0/attn/MatMul"). If none of
// these tells the module, returns the parameter's own name.
std::string module_of(const std::string &parameter, const std::vector<std::string> &made_from, const Node &node) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> names = {parameter};
  names.insert(names.end(), made_from.begin(), made_from.end());
  for (const std::string &name : names)
    if (name.ends_with(kWeight) && naming_of(name) == Naming::own) return name.substr(0, name.size() - kWeight.size());
  const std::string module = graph::module_of_scope(node.name);
  return module.empty() ? parameter : module;
}

// Sets the adapter's matrices A and B. `matrix` is the shape in which the adapted parameter is stored.
void settle_matrices(Adapter &adapter, const std::vector<Target> &targets, const Shape &matrix) {
  const auto product = std::ranges::find(targets, false, &Target::lookup);
  adapter.embedding = product == targets.end();
  adapter.transposed = (adapter.embedding ? targets.front() : *product).as_stored;
  const std::int64_t in = matrix[adapter.transposed ? 0 : 1], out = matrix[adapter.transposed ? 1 : 0];
  const std::string before = adapter.module + (adapter.embedding ? ".lora_embedding_" : ".lora_");
  const std::string after = adapter.embedding ? "" : ".weight";
  using enum AdapterMatrix::Start;
  adapter.a = {before + "A" + after, {adapter.request.rank, in}, adapter.embedding ? zeros : uniform};
  adapter.b = {before + "B" + after, {out, adapter.request.rank}, adapter.embedding ? normal : zeros};
}

// Adds the nodes of adapters to a graph.
class Adapting {
 public:
  Adapting(Graph &graph, std::vector<Adapter> &adapters) : graph_(graph), adapters_(adapters) {}

  // Adds an adapter, and its parameters A and B. finish() emits the adapter's nodes.
  void add(Adapter adapter, const std::vector<Target> &targets) {
    adapter.places = targets.size();
    const DType dtype = graph_.value(targets.front().result).type.dtype;
    const ValueId a = add_parameter(adapter.a, dtype), b = add_parameter(adapter.b, dtype);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const Node &node = graph_.node(targets[i].node);
      parts_.emplace(targets[i].result, Part{targets[i], adapters_.size(), a, b, i, node.attributes});
      products_.emplace(node.outputs[0], targets[i].result);
    }
    adapters_.push_back(std::move(adapter));
  }

  void finish() {
    Rewriter rewriter(graph_);
    rewriter.walk([&](Node &node) {
      const ValueId output = node.outputs.at(0);
      if (const auto product = products_.find(output); product != products_.end()) {
        Part &part = parts_.at(product->second);
        part.inner = emit_inner(rewriter, part);
      }
      const auto found = parts_.find(output);
      if (found == parts_.end()) return rewriter.keep(std::move(node));
      const ValueId before = rewriter.new_value();
      node.outputs[0] = before;
      rewriter.keep(std::move(node));
      add_change(rewriter, found->second, before, output);
    });
  }

 private:
  // The part of a product's or lookup's result that comes from an adapter.
  struct Part {
    Target target;
    std::size_t adapter;
    ValueId a, b;
    std::size_t number;  // index among the parts of the adapter
    Attributes of_node;  // attributes of the product or lookup
    ValueId inner = ValueId::none;

    // False if the node reads the transpose of the adapter's W. The change of W is then transposed too: A and B change
    // places.
    bool straight(const Adapter &adapter) const { return target.as_stored == adapter.transposed; }
  };

  ValueId add_parameter(AdapterMatrix &matrix, DType dtype) {
    const ValueId id = graph_.add_value(
        {.name = matrix.name, .type = {dtype, matrix.shape}, .origin = Origin::parameter, .array = {}});
    matrix.name = graph_.value(id).name;
    return id;
  }

  ValueId emit_inner(Rewriter &r, const Part &part) const;
  void add_change(Rewriter &r, const Part &part, ValueId before, ValueId result) const;
  static ValueId looked_up(Rewriter &r, const Part &part, bool straight);
  ValueId dropped(Rewriter &r, const Part &part) const;

  Graph &graph_;
  std::vector<Adapter> &adapters_;
  std::map<ValueId, Part> parts_;        // by the value that they are added to
  std::map<ValueId, ValueId> products_;  // by the output of a product or lookup: the value that its part is added to
};

// The adapter's part of a product x W or of a lookup in W is scale * (x A^T) B^T. Emits the inner factor, x A^T. It
// stands before the product. So backward meets it after the product, and its gradient, a thin product, can add the
// larger one's to its own.
ValueId Adapting::emit_inner(Rewriter &r, const Part &part) const {
  const bool straight = part.straight(adapters_[part.adapter]);
  if (part.target.lookup) return looked_up(r, part, straight);
  Attributes attributes;
  if (straight) attributes.set("trans_b", std::int64_t{1});
  if (part.of_node.integer("trans_a", 0) != 0) attributes.set("trans_a", std::int64_t{1});
  return r.emit("MatMul", {dropped(r, part), straight ? part.a : part.b}, attributes);
}

// Emits the outer product of the adapter's part, which adds `before` in the same pass: result = before + the part.
void Adapting::add_change(Rewriter &r, const Part &part, ValueId before, ValueId result) const {
  const Adapter &adapter = adapters_[part.adapter];
  const bool straight = part.straight(adapter);
  const ValueId factor = straight ? part.b : part.a;
  Attributes attributes;
  if (straight) attributes.set("trans_b", std::int64_t{1});
  if (const double alpha = adapter.request.scale() * part.of_node.real("alpha", 1.0); alpha != 1)
    attributes.set("alpha", alpha);
  Shape shape = r.shape(part.inner);
  shape.back() = r.shape(factor)[straight ? 0 : 1];
  if (shape == r.shape(before))
    return r.keep({.op = "MatMul",
                   .name = r.base_name(),
                   .attributes = attributes,
                   .inputs = {part.inner, factor, before},
                   .outputs = {result}});
  const ValueId change = r.emit("MatMul", {part.inner, factor}, attributes);
  const ValueId reshaped = r.emit("Reshape", {change}, {{"shape", r.shape(before)}});
  r.keep({.op = "Add", .name = r.base_name(), .attributes = {}, .inputs = {before, reshaped}, .outputs = {result}});
}

// Emits the rows that a lookup's indices pick from A^T, or from B if not `straight`. The result is (..., rank).
ValueId Adapting::looked_up(Rewriter &r, const Part &part, bool straight) {
  const std::int64_t axis = straight ? 1 : 0;
  Attributes attributes = {{"axis", axis}};
  if (part.of_node.has("padding_idx")) attributes.set("padding_idx", part.of_node.integer("padding_idx", 0));
  const ValueId picked = r.emit("Gather", {straight ? part.a : part.b, part.target.x}, attributes);
  const std::size_t rank = r.shape(picked).size();
  if (!straight || rank == 1) return picked;
  std::vector<std::int64_t> perm;
  for (std::size_t i = 1; i <= rank; ++i) perm.push_back(static_cast<std::int64_t>(i % rank));
  return r.emit("Transpose", {picked}, {{"perm", perm}});
}

// Returns the product's left operand after a Dropout, which it emits. Returns the operand itself if the request has no
// dropout.
ValueId Adapting::dropped(Rewriter &r, const Part &part) const {
  const Adapter &adapter = adapters_[part.adapter];
  if (adapter.request.dropout == 0) return part.target.x;
  const std::uint64_t key = fnv1a(fmt::format(" dropout {}", part.number), fnv1a(adapter.a.name));
  return r.emit("Dropout", {part.target.x},
                {{"key", std::bit_cast<std::int64_t>(key)},
                 {"ratio", adapter.request.dropout},
                 {"samples", samples_in(r.shape(part.target.x), batch_of(r.graph()))}});
}

// A parameter, and the names that a pattern is compared with.
struct Candidate {
  ValueId id;
  std::string name, in_file;
  std::string module;  // the module that the parameter belongs to; "": it can have no adapter
  bool told = false;   // the user has told the module
  bool matches(const std::string &pattern) const {
    const auto is = [&](const std::string &one) { return glob_match(pattern, one); };
    return is(name) || is(in_file) || (!module.empty() && is(module + ".weight"));
  }
};

std::vector<Candidate> candidates_of(const Graph &graph, Targets &targets, const Choices &choices,
                                     const std::vector<graph::Split> &splits) {
  std::vector<Candidate> candidates;
  std::map<std::string, int> modules;
  for (const ValueId id : graph.weights()) {
    const std::string &name = graph.value(id).name;
    const auto split = std::ranges::find(splits, name, &graph::Split::name);
    const std::string &in_file = split == splits.end() ? name : split->name_in_file();
    const auto from = choices.declared.folded_from.find(in_file);
    targets.find(id);
    Candidate &candidate = candidates.emplace_back(Candidate{id, name, in_file, ""});
    if (!targets.refusal.empty()) continue;
    const std::vector<std::string> none, &made_from = from == choices.declared.folded_from.end() ? none : from->second;
    const auto told = choices.modules.find(in_file);
    candidate.told = told != choices.modules.end();
    candidate.module =
        candidate.told ? told->second : module_of(in_file, made_from, graph.node(targets.found.front().node));
    ++modules[candidate.module];
  }
  // If several parameters have the same module, the module's name does not tell them apart. So this loop replaces the
  // module's name by the parameter's own name, but never a name that the user has given.
  for (Candidate &candidate : candidates) {
    if (candidate.told || candidate.module.empty() || modules[candidate.module] == 1) continue;
    candidate.module = candidate.name;
    const auto clash = std::ranges::find_if(
        candidates, [&](const Candidate &other) { return other.told && other.module == candidate.name; });
    require(
        clash == candidates.end(), Code::arg, "adapter_names",
        "{} is told to belong to the module {}, and a parameter of this name belongs to no other module; tell another",
        clash == candidates.end() ? "" : printable(clash->in_file), printable(candidate.name));
  }
  return candidates;
}

void require_matches(const AdapterRequest &request, const std::vector<Candidate> &candidates,
                     const std::vector<std::size_t> &matched) {
  const std::string pattern = printable(request.pattern);
  if (!request.one_module) {
    if (!matched.empty()) return;
    std::vector<std::string> names;
    for (const Candidate &candidate : candidates) names.push_back(candidate.name);
    fail(Code::arg, "lora", "the pattern \"{}\" matches no parameter{}", pattern,
         about_wider_pattern(request.pattern, names));
  }
  require(
      !matched.empty(), Code::mismatch, pattern,
      "no parameter that can be adapted belongs to this module of the adapter; a file with the option adapter_names "
      "says which parameter does");
  require(matched.size() == 1, Code::mismatch, pattern, "{} and {} both belong to this module of the adapter",
          candidates[matched.front()].name, candidates[matched.back()].name);
}

// Returns for each candidate the requests that match it. Throws if a request matches no candidate. Also throws if a
// request for one module matches several candidates, or if it matches a candidate that an earlier request matches.
std::vector<std::vector<const AdapterRequest *>> requests_of(const std::vector<Candidate> &candidates,
                                                             const std::vector<AdapterRequest> &requests) {
  std::vector<std::string> modules;
  for (const Candidate &candidate : candidates) modules.push_back(candidate.module);

  std::vector<std::vector<const AdapterRequest *>> found(candidates.size());
  for (const AdapterRequest &request : requests) {
    std::vector<std::size_t> matched;
    if (request.one_module)
      matched = modules_of(modules, request.pattern);
    else
      for (std::size_t i = 0; i < candidates.size(); ++i)
        if (candidates[i].matches(request.pattern)) matched.push_back(i);
    require_matches(request, candidates, matched);

    for (const std::size_t i : matched) found[i].push_back(&request);
    const auto &all = found[matched.front()];
    require(!request.one_module || all.size() == 1, Code::mismatch, candidates[matched.front()].name,
            "the modules {} and {} of the adapter both stand for it; a file with the option adapter_names says which "
            "one does",
            printable(all.front()->pattern), printable(request.pattern));
  }
  return found;
}

// Returns the adapters of the requests, in the order of the parameters that they adapt. Their matrices are not set.
std::vector<Adapter> requested(const Graph &graph, Targets &targets, const Choices &choices,
                               const std::vector<graph::Split> &splits) {
  std::vector<Adapter> adapters;
  const std::vector<Candidate> candidates = candidates_of(graph, targets, choices, splits);
  const auto requests = requests_of(candidates, choices.adapters);
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (!requests[i].empty())
      adapters.push_back({.parameter = candidates[i].name,
                          .module = candidates[i].module,
                          .request = *requests[i].front(),
                          .a = {},
                          .b = {}});
  return adapters;
}

}  // namespace

std::vector<Adapter> add_adapters(Graph &graph, const Choices &choices, const std::vector<graph::Split> &splits,
                                  std::vector<Finding> &findings) {
  std::vector<Adapter> adapters;
  if (choices.adapters.empty()) return adapters;
  const std::vector<std::vector<NodeId>> readers = graph.consumers();
  Targets targets(graph, readers);
  Adapting adapting(graph, adapters);
  const bool settled = choices.settled != nullptr;
  const std::vector<Adapter> wanted = settled ? choices.settled->adapters : requested(graph, targets, choices, splits);
  for (Adapter adapter : wanted) {
    const ValueId id = graph.find(adapter.parameter);
    if (settled && (id == ValueId::none || readers[index(id)].empty())) continue;
    targets.find(id);
    require(targets.refusal.empty(), Code::unsupported, adapter.parameter, "lora={} asks for an adapter of it, but {}",
            printable(adapter.request.pattern), targets.refusal);
    if (!settled) settle_matrices(adapter, targets.found, targets.matrix());
    adapting.add(std::move(adapter), targets.found);
  }
  adapting.finish();
  for (const Adapter &adapter : adapters)
    for (const AdapterMatrix *matrix : {&adapter.a, &adapter.b})
      findings.push_back({.initializer = matrix->name,
                          .parameter = true,
                          .reason = "adapter of " + adapter.parameter,
                          .evidence = Evidence::option});
  return adapters;
}

}  // namespace protrain::passes
