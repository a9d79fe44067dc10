// Draft: everything that is fixed before a session starts, as plain values: graphs, plan, state, Programs.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "draft/adapter_file.h"
#include "draft/alarm.h"
#include "draft/export.h"
#include "draft/parameter_groups.h"
#include "draft/planning.h"
#include "draft/settings.h"
#include "onnx_import/model.h"

namespace protrain::draft {

struct Draft {
  Settings settings;  // with the batch bound
  std::unique_ptr<onnx_import::Model> file;
  std::vector<graph::Split> splits;  // parameters that share one initializer in the file
  std::map<std::string, Tie> ties;   // by the initializer's name
  std::vector<passes::Adapter> adapters;
  std::shared_ptr<const AdapterFile> adapter;  // the adapters' start values; nullptr if the option adapter is not set
  std::vector<passes::RoundedMatrix> rounded;  // frozen weights that base_precision rounds
  std::vector<std::string> doubts;             // initializers whose role is uncertain
  std::vector<std::string> unmatched;          // names that are declared as parameters and that no initializer has
  std::vector<Alarm> alarms;                   // problems that the graph and the options show
  std::string loss_from;                       // for an attached loss: what it is computed from
  std::uint64_t accumulation = 1;              // micro-batches per step, of each rank
  std::uint64_t micro_batch = 0;  // samples per micro-batch, if settle_micro_batch chose the number; else 0
  std::vector<bool> kept;         // per parameter: its gradient can be read
  ParameterGroups groups;
  NormGroups norm_groups;                               // a session reports the norm of each group's gradients
  std::vector<std::string> output_names;                // of the outputs that keep_outputs names, in the file's order
  std::vector<std::unique_ptr<ShapeVariant>> variants;  // the first is for `settings.dims`, the others for `shapes`
  profile::Profile profile;
  Budget budget;
  Decision decision;
  ProgramSet programs;                      // for the chosen plan
  std::vector<StepSimulation> simulations;  // per variant

  const ShapeVariant &first() const { return *variants.front(); }
  bool predicts() const { return first().outputs.node_count() > 0; }  // true if the option keep_outputs is set
  bool scales_loss() const { return first().training.loss_scale != graph::ValueId::none; }
  // The numbers of micro-batches, samples and tokens in one step, over all ranks.
  std::uint64_t micro_batches() const { return accumulation * static_cast<std::uint64_t>(settings.ranks.count); }
  double samples() const { return static_cast<double>(first().batch.samples) * static_cast<double>(micro_batches()); }
  // Returns the memory that every rank must have, which is the most that any rank needs.
  plan::Bytes needed() const {
    plan::Bytes bytes = programs.bytes;
    if (decision.found.best)
      for (const Tier t : kTiers) bytes[t] = std::max(bytes[t], decision.found.best->cost.bytes[t]);
    return bytes;
  }
  // True if the plan, found or from a file, fits the budget.
  bool fits() const {
    return decision.found.best || (!settings.plan.empty() && !plan::first_lacking(programs.bytes, budget.bytes));
  }
  // Returns the number of tokens in one step, over all ranks. Returns 0 if a sample has at most one integer, because a
  // single integer is a class and no token.
  double tokens() const {
    const std::int64_t of_sample = first().batch.tokens_per_sample;
    return of_sample > 1 ? samples() * static_cast<double>(of_sample) : 0;
  }
  // Returns the name of the file's initializer that holds the parameter's values.
  const std::string &in_file(const std::string &parameter) const {
    const auto split = std::ranges::find(splits, parameter, &graph::Split::name);
    return split == splits.end() ? parameter : split->original;
  }
};

}  // namespace protrain::draft
