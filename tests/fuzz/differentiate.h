// Makes the training graph of a model that is given as bytes, as `protrain check` does.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "fuzz/answer.h"
#include "fuzz/models.h"
#include "grad/training.h"
#include "passes/passes.h"
#include "scratch.h"

namespace protrain::fuzz {

// A directory for external data, which holds a file `data` of 4 KiB and a directory `folder`.
inline const std::string &external_folder() {
  static const test::Scratch scratch;
  static const std::string path = [] {
    scratch.put("data", std::string(4096, '?'));
    std::filesystem::create_directory(scratch / "folder");
    return scratch.path();
  }();
  return path;
}

inline onnx_import::DimBindings all_bound(const onnx_import::Model &model) {
  onnx_import::DimBindings dims;
  for (const std::string &name : model.symbolic_dims()) dims[name] = 3;
  return dims;
}

struct GradientResult {
  std::optional<grad::Training> training;  // nothing if the model is refused
  bool attached = false;                   // an mse loss was attached, because the model has none
};

// The first output that is a float32 number without axes; ValueId::none if no output is.
inline graph::ValueId loss_of(const graph::Graph &graph) {
  for (const graph::ValueId id : graph.outputs)
    if (const graph::Type &type = graph.value(id).type; type.dtype == DType::f32 && passes::may_be_loss(type))
      return id;
  return graph::ValueId::none;
}

inline GradientResult differentiate(const std::string &bytes) {
  GradientResult found;
  std::vector<passes::Loss> losses;
  const auto attempt = [&] {
    const auto file = onnx_import::Model::open(in_memory(bytes, external_folder()));
    const auto load = [&](const std::string &name) { return file->load(name); };
    passes::PreparedModel prepared =
        passes::prepare(file->graph(all_bound(*file)), load, {.losses = losses, .bodies = &file->bodies()});
    const graph::ValueId id = loss_of(prepared.graph);
    found.attached = id == graph::ValueId::none;
    if (!found.attached || !losses.empty()) found.training = grad::build(std::move(prepared.graph), id);
  };
  answer(attempt);
  if (!found.attached) return found;
  losses = {{.kind = passes::Loss::Kind::mse, .labels = "labels"}};
  answer(attempt);
  found.attached = true;
  return found;
}

}  // namespace protrain::fuzz
