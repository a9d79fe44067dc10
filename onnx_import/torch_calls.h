// The calls in PyTorch that its exporter (dynamo=True) wrote nodes for, as the nodes' metadata name them. ONNX has no
// words for what some calls do to gradients.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/declared.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// True for an Identity that stands for detach(): no gradient passes it.
bool is_detach(const NodeProto &node);

// Returns the `padding_idx` of a Gather that stands for an embedding: this row of the table gets no gradient. Returns
// nothing for a Gather without one, and for all other nodes.
std::optional<std::int64_t> padding_of(const NodeProto &node);

// Returns the losses, by name of their node, that have a `label_smoothing` in PyTorch. The exporter leaves it out,
// because SoftmaxCrossEntropyLoss has none.
std::vector<std::string> losses_without_smoothing(const GraphProto &graph);

// Returns the nodes, by name, that read a detach() of what depends on a parameter, where the exporter's optimizer
// dropped the Identity. `kinds` says which initializers are parameters.
std::vector<std::string> readers_of_lost_detach(const GraphProto &graph,
                                                const std::map<std::string, graph::StoredKind> &kinds);

}  // namespace protrain::onnx_import
