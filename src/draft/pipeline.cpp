#include "draft/pipeline.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "draft/alarms.h"
#include "draft/identity.h"
#include "draft/loaded_model.h"
#include "draft/other_ranks.h"
#include "grad/targets.h"
#include "passes/parameters/stored.h"

namespace protrain::draft {

namespace {

using graph::ValueId;

// Returns the number of micro-batches per step of each rank.
std::uint64_t accumulation_of(const Settings &settings, const Batch &batch) {
  if (!settings.tokens_per_step) return static_cast<std::uint64_t>(settings.accumulation.value_or(1));
  require(!settings.accumulation, Code::arg, "tokens_per_step",
          "tokens_per_step and accumulation say the same thing; set one of them");
  require(batch.tokens_per_sample > 0, Code::arg, "tokens_per_step",
          "the model has no integer input whose elements would be tokens; use accumulation");
  const std::int64_t wanted = *settings.tokens_per_step, tokens = batch.tokens() * settings.ranks.count;
  require(tokens > 0 && wanted % tokens == 0, Code::arg, "tokens_per_step",
          "{} tokens are not a multiple of the {} of one batch{}", wanted, tokens,
          settings.ranks.count > 1 ? fmt::format(" on each of {} ranks", settings.ranks.count) : "");
  return static_cast<std::uint64_t>(wanted / tokens);
}

std::vector<bool> kept_gradients(const std::vector<std::string> &patterns, const grad::Training &training) {
  std::vector<bool> kept(training.gradients.size(), false);
  for (const std::string &pattern : patterns) {
    bool matched = false;
    for (std::size_t p = 0; p < kept.size(); ++p)
      if (training.gradients[p] != ValueId::none &&
          glob_match(pattern, training.graph.value(training.graph.parameters[p]).name))
        kept[p] = matched = true;
    require(matched, Code::arg, "keep_gradients", "no trained parameter matches '{}'", pattern);
  }
  return kept;
}

// A model with its shapes, before it is differentiated.
struct Undifferentiated {
  graph::Graph graph, outputs;
  ValueId loss;
  Batch batch;
};

// Pipeline fills the draft in the order of run(). It is a class because every function reads what earlier ones put into
// the draft. After run() nothing in the draft changes.
class Pipeline {
 public:
  Pipeline(const Settings &settings, TargetMachine &machine, Goal goal)
      : settings_(settings), machine_(machine), goal_(goal) {
    draft_.settings = settings;
  }

  Draft run(const onnx_import::ModelSource &source) {
    load_first(load_model(settings_, source));
    for (const onnx_import::DimBindings &shapes : settings_.shapes) {
      differentiate(load_model(settings_, source, shapes));
      require_same_parameters(*draft_.variants.back());
      require_same_inputs(*draft_.variants.back());
    }
    draft_.kept = kept_gradients(settings_.keep_gradients, draft_.first().training);
    machine_.require_same([&] { return identities(draft_); });
    measure();
    choose_and_lower();
    return std::move(draft_);
  }

 private:
  void load_first(LoadedModel loaded) {
    draft_.splits = std::move(loaded.prepared.splits);
    draft_.ties = ties_of(loaded.prepared.findings);
    draft_.adapters = std::move(loaded.prepared.adapters);
    draft_.adapter = std::move(loaded.adapter);
    draft_.rounded = std::move(loaded.rounded);
    draft_.loss_from = std::move(loaded.prepared.loss_from);
    for (const passes::Finding &finding : loaded.prepared.findings)
      if (!finding.doubt.empty()) draft_.doubts.push_back(finding.initializer);
    draft_.unmatched = std::move(loaded.prepared.unmatched);
    draft_.output_names = std::move(loaded.output_names);
    if (settings_.trains) draft_.accumulation = accumulation_of(settings_, loaded.batch);
    draft_.groups = parameter_groups(settings_.groups, settings_.optimizer.weight_decay, loaded.prepared.graph);
    draft_.norm_groups = norm_groups(settings_.groups, loaded.prepared.graph);
    draft_.file = std::move(loaded.file);
    const std::vector<passes::Finding> findings = std::move(loaded.prepared.findings);
    differentiate(std::move(loaded));
    if (settings_.trains)
      draft_.alarms = find_alarms(
          {settings_, *draft_.file, findings, draft_.first().training, draft_.groups, draft_.first().outputs});
  }

  void differentiate(LoadedModel loaded) {
    if (plans_for_others())
      undifferentiated_.push_back({loaded.prepared.graph, loaded.outputs, loaded.loss, loaded.batch});
    draft_.variants.push_back(
        variant_of({std::move(loaded.prepared.graph), std::move(loaded.outputs), loaded.loss, loaded.batch},
                   settings_.ranks.rank));
  }

  std::unique_ptr<ShapeVariant> variant_of(Undifferentiated of, int rank) const {
    auto variant = std::make_unique<ShapeVariant>();
    variant->batch = of.batch;
    variant->loss = of.loss;
    variant->forward = of.graph;
    variant->outputs = std::move(of.outputs);
    const grad::WeighedLoss weighed = grad::weigh_loss(variant->forward, of.loss);
    variant->loss = weighed.loss;
    variant->weight = weighed.weight;
    variant->forward.outputs = {variant->loss};
    if (variant->weight != ValueId::none) variant->forward.outputs.push_back(variant->weight);
    passes::for_evaluation(variant->forward);
    variant->forward.drop_dead_nodes();
    grad::prune_unread_outputs(variant->forward);
    for (graph::Graph *graph : {&variant->forward, &variant->outputs}) passes::widen_inside(*graph);
    variant->training = settings_.trains ? differentiated(std::move(of.graph), of.loss, rank)
                                         : grad::without_gradients(variant->forward, weighed, rank, ranks());
    variant->numbered_samples =
        static_cast<std::uint64_t>(std::max(of.batch.samples, passes::samples_drawn(variant->training.graph)));
    return variant;
  }

  grad::Training differentiated(graph::Graph forward, ValueId loss, int rank) const {
    grad::Training training = grad::build(std::move(forward), loss,
                                          {.clip_norm = settings_.clip_norm,
                                           .accumulate = accumulates(),
                                           .scale_loss = settings_.precision == DType::f16,
                                           .rank = rank,
                                           .ranks = ranks(),
                                           .local_sums = settings_.ranks.local_sums});
    passes::widen_inside(training.graph);
    return training;
  }

  int ranks() const { return settings_.ranks.count; }
  bool plans_for_others() const { return ranks() > 1 && settings_.ranks.rank == 0 && settings_.plan.empty(); }
  bool accumulates() const { return draft_.accumulation > 1; }

  void require_same_parameters(const ShapeVariant &variant) const {
    const graph::Graph &a = draft_.first().training.graph, &b = variant.training.graph;
    bool same = a.parameters.size() == b.parameters.size();
    for (std::size_t p = 0; same && p < a.parameters.size(); ++p)
      same = a.value(a.parameters[p]).name == b.value(b.parameters[p]).name &&
             a.value(a.parameters[p]).type == b.value(b.parameters[p]).type;
    require(same, Code::shape, "shapes", "the model's parameters differ between the bindings");
  }

  void require_same_inputs(const ShapeVariant &variant) const {
    const graph::Graph &a = draft_.first().forward, &b = variant.forward;
    const auto name_in = [](const graph::Graph &graph) {
      return [&graph](ValueId id) { return graph.value(id).name; };
    };
    require(std::ranges::equal(a.inputs, b.inputs, {}, name_in(a), name_in(b)), Code::shape, "shapes",
            "an input has elements under one of the bindings only");
  }

  // Compiles all kernels first, so that operators without one are reported before anything is measured. The profile
  // comes before the Programs, because it decides which algorithms the kernels use, and so how much scratch they need.
  void measure() {
    std::vector<const graph::Graph *> graphs;
    for (const auto &variant : draft_.variants) {
      graphs.push_back(&variant->training.graph);
      for (const graph::Graph *graph : {&variant->training.graph, &variant->forward, &variant->outputs})
        machine_.workspace(*graph);
    }
    draft_.profile = machine_.profile(graphs, settings_.optimizer);
    draft_.budget = budget_of(settings_, draft_.profile);
  }

  void choose_and_lower() {
    const bool through_host = !settings_.ranks.reaches_devices && !draft_.profile.shares_memory;
    const program::StateRequest request = {
        .shards = draft_.first().training.shards,
        .exchanges = through_host ? Tier::host : Tier::device,
        .optimizer = program::optimizer_arrays(settings_.precision, settings_.optimizer.state()),
        .accumulates = accumulates(),
        .kept = draft_.kept,
        .groups = draft_.groups.of_parameter};
    const PlanLowering lowering(draft_.variants, machine_, request);
    OtherRanks others(request, machine_);
    if (plans_for_others()) add_others(others);
    PlanningInputs inputs{.settings = settings_,
                          .lowering = lowering,
                          .others = others,
                          .variant = draft_.first(),
                          .profile = draft_.profile,
                          .budget = draft_.budget,
                          .barrier = needs_barrier(),
                          .accumulation = draft_.accumulation,
                          .optimizer = {.state = 0},
                          .goal = goal_};
    for (const program::OptimizerArray &array : request.optimizer) inputs.optimizer.state += array.bytes_each();
    decide(inputs);
    draft_.programs = lowering.lower(draft_.decision.plan);
    draft_.programs.each(program::verify);
    for (std::size_t v = 0; v < draft_.variants.size(); ++v) {
      const plan::Durations durations(draft_.profile, draft_.variants[v]->training.graph, inputs.optimizer);
      draft_.simulations.push_back(simulate_step(draft_.programs.variants[v], durations));
    }
  }

  void add_others(OtherRanks &others) const {
    for (int rank = 1; rank < ranks(); ++rank) {
      std::vector<std::unique_ptr<ShapeVariant>> variants;
      for (const Undifferentiated &one : undifferentiated_) variants.push_back(variant_of(one, rank));
      others.add(std::move(variants));
    }
  }

  // Rank 0 chooses the plan for all ranks.
  void decide(const PlanningInputs &inputs) {
    const std::string plan = machine_.of_rank_0([&] {
      draft_.decision = choose_plan(inputs);
      return plan::to_json(draft_.decision.plan);
    });
    if (settings_.ranks.rank > 0)
      draft_.decision.plan = plan::from_json(plan, draft_.first().training.graph, {.ranks = ranks()});
  }

  // True if the first update must wait for all gradients: for their norm, for the check that all are finite, or for
  // their sums over micro-batches.
  bool needs_barrier() const {
    return settings_.clip_norm > 0 || settings_.on_nonfinite != NonfinitePolicy::stop || accumulates() ||
           draft_.scales_loss();
  }

  const Settings &settings_;
  TargetMachine &machine_;
  const Goal goal_;
  Draft draft_;
  std::vector<Undifferentiated> undifferentiated_;  // per variant, if this rank plans for others
};

}  // namespace

Draft run_pipeline(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
                   Goal goal) {
  return Pipeline(settings, machine, goal).run(source);
}

}  // namespace protrain::draft
