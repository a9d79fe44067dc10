// The way from options and a path to a graph that can be differentiated; shared by Session and check.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "onnx_import/model.h"
#include "passes/passes.h"
#include "session/options.h"

namespace protrain::session {

struct LoadedModel {
  std::unique_ptr<onnx_import::Model> file;
  passes::Prepared prepared;
  graph::ValueId loss = graph::ValueId::none;
};

// What weights and activations are in during a step.
DType precision_of(const Options &options);

// The loss that options attach; Code::arg where they describe one and ask for none.
std::optional<passes::Loss> loss_of(const Options &options);

// What the `dim` options bind; Code::shape where one dim is bound to two values.
onnx_import::DimBindings dim_bindings(const Options &options);

// `more`: "NAME=N,..." binds further dims, or other values than the options.
LoadedModel load_model(const Options &options, const onnx_import::Source &source, const std::string &more = "");

// As above from an open file with all dims bound.
LoadedModel load_model(const Options &options, std::unique_ptr<onnx_import::Model> file,
                       const onnx_import::DimBindings &dims);

}  // namespace protrain::session
