#include "session/blueprint.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "session/loaded_model.h"
#include "session/micro_batch.h"
#include "session/refusal.h"

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

class Drawing {
 public:
  Drawing(const Options &options, Site &site) : options_(options), site_(site) {}

  Blueprint run(const onnx_import::Source &source) {
    blueprint_.optimizer = optimizer_of(options_);
    blueprint_.policy = policy_of(options_);
    serve(load_model(options_, source));
    for (const std::string &binding : options_.list("shapes")) serve(load_model(options_, source, binding));
    blueprint_.kept = kept_gradients(options_, blueprint_.first().training);
    plan();
    return std::move(blueprint_);
  }

 private:
  void serve(LoadedModel loaded) {
    auto served = std::make_unique<Served>();
    served->loss = loaded.loss;
    served->forward = loaded.prepared.graph;
    if (!blueprint_.file) {
      blueprint_.file = std::move(loaded.file);
      blueprint_.splits = std::move(loaded.prepared.splits);
      blueprint_.loss_from = std::move(loaded.prepared.loss_from);
      for (const passes::Finding &finding : loaded.prepared.findings) {
        if (!finding.tied_to.empty())
          blueprint_.tied.emplace(finding.initializer, Tied{finding.tied_to, finding.turned});
        if (!finding.doubt.empty()) blueprint_.doubts.push_back(finding.initializer);
      }
      blueprint_.unmatched = std::move(loaded.prepared.unmatched);
      blueprint_.accumulation = accumulation_of(options_, served->forward);
    }
    served->training = grad::build(std::move(loaded.prepared.graph), loaded.loss,
                                   {.clip_norm = options_.real("clip_norm"),
                                    .accumulate = accumulates(),
                                    .scale_loss = precision_of(options_) == DType::f16});
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

  void plan() {
    const auto moments = static_cast<std::size_t>(blueprint_.optimizer.state_count());
    const program::StateRequest request = {.optimizer = program::optimizer_arrays(precision_of(options_), moments),
                                           .accumulates = accumulates(),
                                           .kept = blueprint_.kept};
    std::vector<const graph::Graph *> graphs;
    for (const auto &served : blueprint_.served) graphs.push_back(&served->training.graph);
    // Every operator that has no kernel is told at once, before anything is measured. The profile comes next: it
    // settles which algorithms kernels use, and so the scratch that Programs have to have.
    for (const auto &served : blueprint_.served)
      for (const graph::Graph *graph : {&served->training.graph, &served->forward}) site_.workspace(*graph);
    blueprint_.profile = site_.profile(graphs, blueprint_.optimizer);
    const Drafter drafter(blueprint_.served, site_, request);
    blueprint_.budget = budget_of(options_, blueprint_.profile);
    Ground ground{.options = options_,
                  .drafter = drafter,
                  .served = blueprint_.first(),
                  .profile = blueprint_.profile,
                  .budget = blueprint_.budget,
                  .barrier = options_.is_set("clip_norm") || blueprint_.policy != NonfinitePolicy::stop ||
                             accumulates() || blueprint_.scales_loss(),
                  .accumulation = blueprint_.accumulation,
                  .optimizer = {.state = 0}};
    for (const program::OptimizerArray &array : request.optimizer) ground.optimizer.state += array.element_bytes;
    blueprint_.chosen = choose_plan(ground);
    blueprint_.draft = drafter.lower(blueprint_.chosen.plan);
    blueprint_.draft.each(program::verify);
    for (std::size_t b = 0; b < graphs.size(); ++b)
      blueprint_.predicted.push_back(
          predict(blueprint_.draft.programs[b], plan::Clock(blueprint_.profile, *graphs[b], ground.optimizer)));
  }

  const Options &options_;
  Site &site_;
  Blueprint blueprint_;
};

}  // namespace

Blueprint sketch(const Options &options, const onnx_import::Source &source, Site &site) {
  const std::optional<MicroBatch> settled = settle_micro_batch(options, source, site);
  if (!settled) return Drawing(options, site).run(source);
  Options bound = options;
  bound.set("dim", fmt::format("{}={}", settled->dim, settled->samples));
  Blueprint blueprint = Drawing(bound, site).run(source);
  blueprint.micro_batch = static_cast<std::uint64_t>(settled->samples);
  return blueprint;
}

Blueprint draw_up(const Options &options, const onnx_import::Source &source, Site &site) {
  Blueprint blueprint = sketch(options, source, site);
  if (blueprint.chosen.smallest && !blueprint.chosen.found.best) refuse(options, source, site, blueprint);
  require_budget(options, blueprint.profile, blueprint.draft.bytes);
  return blueprint;
}

}  // namespace protrain::session
