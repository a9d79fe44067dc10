// Draft: everything that is fixed once a session exists, as plain values: graphs, plan, state, Programs.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "draft/planning.h"
#include "draft/settings.h"
#include "onnx_import/model.h"

namespace protrain::draft {

// An initializer of the file that is a parameter again, or its transpose.
struct Tie {
  std::string parameter;
  bool transposed = false;
};

struct Draft {
  Settings settings;  // with the batch bound
  std::unique_ptr<onnx_import::Model> file;
  std::vector<graph::Split> splits;    // parameters that the file has once for several
  std::map<std::string, Tie> ties;     // by the initializer's name
  std::vector<std::string> doubts;     // initializers that may not be what they were taken for
  std::vector<std::string> unmatched;  // names that were declared to be parameters and are no initializers
  std::string loss_from;               // of an attached loss: what it is computed from
  std::uint64_t accumulation = 1;      // micro-batches of a step
  std::uint64_t micro_batch = 0;       // samples of each, where that was settled; 0: the settings say it
  std::vector<bool> kept;              // per parameter: its gradient can be read
  std::vector<std::unique_ptr<ShapeVariant>> variants;  // the first is that of `settings.dims`, then `shapes`
  profile::Profile profile;
  Budget budget;
  Decision decision;
  ProgramSet programs;                  // of the plan that was chosen
  std::vector<Prediction> predictions;  // per variant

  const ShapeVariant &first() const { return *variants.front(); }
  bool scales_loss() const { return first().training.loss_scale != graph::ValueId::none; }
  // Of a step.
  double samples() const { return static_cast<double>(first().batch.samples) * static_cast<double>(accumulation); }
  double tokens() const { return samples() * static_cast<double>(first().batch.tokens_per_sample); }
  // The initializer that a parameter comes from.
  const std::string &in_file(const std::string &parameter) const {
    const auto split = std::ranges::find(splits, parameter, &graph::Split::name);
    return split == splits.end() ? parameter : split->original;
  }
};

}  // namespace protrain::draft
