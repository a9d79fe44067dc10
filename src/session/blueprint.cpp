#include "session/blueprint.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "session/loaded_model.h"

namespace protrain::session {

namespace {

using graph::ValueId;

backend::Optimizer optimizer_of(const Options &options) {
  using Kind = backend::Optimizer::Kind;
  return {.kind = options.text("optimizer") == "sgd" ? Kind::sgd : Kind::adamw,
          .beta1 = options.real("beta1"),
          .beta2 = options.real("beta2"),
          .epsilon = options.real("epsilon"),
          .weight_decay = options.real("weight_decay"),
          .momentum = options.real("momentum"),
          .clip_value = options.real("clip_value")};
}

NonfinitePolicy policy_of(const Options &options) {
  const std::string name = options.text("on_nonfinite");
  return name == "skip"       ? NonfinitePolicy::skip
         : name == "rollback" ? NonfinitePolicy::rollback
                              : NonfinitePolicy::stop;
}

// Tokens of a batch: the elements of the first input that holds integers.
std::uint64_t accumulation_of(const Options &options, const graph::Graph &graph) {
  if (!options.is_set("tokens_per_step")) return static_cast<std::uint64_t>(options.integer("accumulation"));
  require(!options.is_set("accumulation"), Code::arg, "tokens_per_step",
          "tokens_per_step and accumulation say the same thing; set one of them");
  const auto holds_tokens = [&](ValueId id) { return is_integer(graph.value(id).type.dtype); };
  const auto input = std::ranges::find_if(graph.inputs, holds_tokens);
  require(input != graph.inputs.end(), Code::arg, "tokens_per_step",
          "the model has no integer input whose elements would be tokens; use accumulation");
  const std::int64_t wanted = options.integer("tokens_per_step"), batch = element_count(graph.value(*input).type.shape);
  require(batch > 0 && wanted % batch == 0, Code::arg, "tokens_per_step",
          "{} tokens are not a multiple of the {} of one batch", wanted, batch);
  return static_cast<std::uint64_t>(wanted / batch);
}

std::vector<bool> kept_gradients(const Options &options, const grad::Training &training) {
  std::vector<bool> kept(training.gradients.size(), false);
  for (const std::string &pattern : options.list("keep_gradients")) {
    bool matched = false;
    for (std::size_t p = 0; p < kept.size(); ++p)
      if (training.gradients[p] != ValueId::none &&
          glob_match(pattern, training.graph.value(training.graph.parameters[p]).name))
        kept[p] = matched = true;
    require(matched, Code::arg, "keep_gradients", "no trained parameter matches '{}'", pattern);
  }
  return kept;
}

program::Source training_source(const Served &served, std::size_t binding, bool updates) {
  const grad::Training &training = served.training;
  return {.graph = training.graph,
          .loss = training.loss,
          .norm = training.norm,
          .gradients = training.gradients,
          .squared_norms = training.squared_norms,
          .accumulators = training.accumulators,
          .weight = training.weight,
          .scale = training.scale,
          .updates = updates,
          .binding = binding};
}

program::Source evaluation_source(const Served &served, std::size_t binding) {
  return {.graph = served.forward, .loss = served.loss, .updates = false, .binding = binding};
}

plan::Plan plan_in(const std::string &file, const graph::Graph &graph, const plan::Choice &base) {
  try {
    return plan::from_json(read_text(file), graph, base);
  } catch (Error &error) {
    error.subject = file;
    throw;
  }
}

class Drawing {
 public:
  Drawing(const Options &options, run::Kernels &kernels, const backend::DeviceInfo &device)
      : options_(options), kernels_(kernels), device_(device) {}

  Blueprint run(const std::string &path) {
    blueprint_.optimizer = optimizer_of(options_);
    blueprint_.policy = policy_of(options_);
    serve(load_model(options_, path));
    for (const std::string &binding : options_.list("shapes")) serve(load_model(options_, path, binding));
    blueprint_.kept = kept_gradients(options_, blueprint_.first().training);
    choose_plan();
    lower();
    require_budgets();
    return std::move(blueprint_);
  }

 private:
  void serve(LoadedModel loaded) {
    auto served = std::make_unique<Served>();
    served->loss = loaded.loss;
    served->forward = loaded.prepared.graph;
    if (!blueprint_.file) {
      blueprint_.file = std::move(loaded.file);
      blueprint_.accumulation = accumulation_of(options_, served->forward);
    }
    served->training = grad::build(std::move(loaded.prepared.graph), loaded.loss,
                                   {.clip_norm = options_.real("clip_norm"), .accumulate = accumulates()});
    served->forward.outputs = {served->loss};
    passes::without_randomness(served->forward);
    served->forward.drop_dead_nodes();
    grad::prune_unread_outputs(served->forward);
    if (!blueprint_.served.empty()) require_same_parameters(*served);
    blueprint_.served.push_back(std::move(served));
  }

  bool accumulates() const { return blueprint_.accumulation > 1; }

  void require_same_parameters(const Served &served) const {
    const graph::Graph &a = blueprint_.first().training.graph, &b = served.training.graph;
    bool same = a.parameters.size() == b.parameters.size();
    for (std::size_t p = 0; same && p < a.parameters.size(); ++p)
      same = a.value(a.parameters[p]).name == b.value(b.parameters[p]).name &&
             a.value(a.parameters[p]).type == b.value(b.parameters[p]).type;
    require(same, Code::shape, "shapes", "under one of the bindings the model has other parameters");
  }

  // Where nothing says otherwise, everything stays on the device. What the options need decides the order.
  void choose_plan() {
    const bool needs_barrier =
        options_.is_set("clip_norm") || blueprint_.policy != NonfinitePolicy::stop || accumulates();
    const bool separate = options_.is_set("device_memory") || options_.is_set("host_memory") || !device_.shares_memory;
    require(!(separate && options_.is_set("memory")), Code::arg, "memory",
            "memory is one budget for device and host; set it, or device_memory and host_memory");
    const graph::Graph &graph = blueprint_.first().training.graph;
    plan::Choice base{.n_persist = static_cast<int>(graph.parameters.size()), .shared_memory = !separate};
    base.order = needs_barrier ? plan::OptimizerOrder::barrier : plan::OptimizerOrder::overlap;
    const std::string file = options_.text("plan");
    blueprint_.plan = file.empty() ? plan::expand(graph, base) : plan_in(file, graph, base);
    require(
        !needs_barrier || blueprint_.plan.order == plan::OptimizerOrder::barrier, Code::arg, "plan",
        "clipping by norm, accumulation, skip and rollback need the optimizer order barrier; the plan's is overlap");
    require(blueprint_.plan.shared_memory == !separate, Code::arg, "plan",
            "the plan is for {} memory of device and host, the options are for {}", separate ? "one" : "separate",
            separate ? "device_memory and host_memory" : "one budget, memory");
  }

  void lower() {
    std::vector<program::Source> sources;
    auto &served = blueprint_.served;
    for (std::size_t b = 0; b < served.size(); ++b) sources.push_back(training_source(*served[b], b, true));
    for (std::size_t b = 0; b < served.size(); ++b) sources.push_back(evaluation_source(*served[b], b));
    const auto moments = static_cast<std::size_t>(blueprint_.optimizer.state_count());
    const program::StateRequest request = {.optimizer = program::optimizer_arrays(precision_of(options_), moments),
                                           .accumulates = accumulates(),
                                           .kept = blueprint_.kept};
    blueprint_.state = program::lay_out_state(sources, blueprint_.plan, request);
    for (std::size_t b = 0; b < served.size(); ++b) {
      const program::Workspace workspace = kernels_.compile(served[b]->training.graph);
      served[b]->step = lowered(sources[b], workspace);
      if (accumulates()) served[b]->accumulate = lowered(training_source(*served[b], b, false), workspace);
      served[b]->evaluation = lowered(sources[served.size() + b], kernels_.compile(served[b]->forward));
    }
  }

  program::Program lowered(const program::Source &source, const program::Workspace &workspace) {
    program::Program program = program::lower(source, blueprint_.plan, blueprint_.state, workspace);
    program::verify(program);
    for (std::size_t t = 0; t < kTierCount; ++t)
      blueprint_.bytes[t] = std::max(blueprint_.bytes[t], program.arena_bytes[t]);
    return program;
  }

  void require_budget(const std::string &key, std::uint64_t needed) const {
    require(needed <= options_.bytes(key), Code::budget, key,
            "the plan needs {} bytes ({}) and {} is {}; the smallest that works with it is {}", needed,
            bytes_text(needed), key, options_.bytes(key), needed);
  }

  void require_budgets() const {
    const std::uint64_t device = blueprint_.bytes[0], host = blueprint_.bytes[1], disk = blueprint_.bytes[2];
    if (options_.is_set("memory")) require_budget("memory", device);
    if (options_.is_set("device_memory")) require_budget("device_memory", device);
    if (options_.is_set("host_memory")) require_budget("host_memory", host);
    if (options_.is_set("disk_memory")) require_budget("disk_memory", disk);
    const std::uint64_t needed = device_.shares_memory ? checked_add(device, host) : device;
    require(needed <= device_.memory_bytes, Code::budget, "memory",
            "the plan needs {} bytes ({}) and this process may take {}", needed, bytes_text(needed),
            device_.memory_bytes);
    require(disk == 0 || options_.is_set("offload_dir"), Code::arg, "offload_dir",
            "the plan puts {} on disk; name a directory for it", bytes_text(disk));
  }

  const Options &options_;
  run::Kernels &kernels_;
  const backend::DeviceInfo &device_;
  Blueprint blueprint_;
};

}  // namespace

Blueprint draw_up(const Options &options, const std::string &path, run::Kernels &kernels,
                  const backend::DeviceInfo &device) {
  return Drawing(options, kernels, device).run(path);
}

}  // namespace protrain::session
