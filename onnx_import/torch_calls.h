// Finds out which calls in PyTorch the nodes of a graph stand for. PyTorch's exporter (dynamo=True) writes the calls
// into the nodes' metadata. Some calls change gradients in a way that ONNX itself cannot express.
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

// Returns the `padding_idx` of an embedding, which PyTorch's exporter writes as a Gather. The row of the table with
// this index gets no gradient. Returns an empty optional if the node is no such Gather, or if its call has no
// `padding_idx`.
std::optional<std::int64_t> padding_of(const NodeProto &node);

// Returns the names of the loss nodes whose loss has a `label_smoothing` in PyTorch. The exporter leaves the smoothing
// out, because ONNX's SoftmaxCrossEntropyLoss has no attribute for it.
std::vector<std::string> losses_without_smoothing(const GraphProto &graph);

// Returns the names of BatchNormalization nodes that use the batch's own statistics in PyTorch. The file has them in
// the form for evaluation.
std::vector<std::string> norms_out_of_training(const GraphProto &graph);

// Returns the names of nodes of an attention that drops out probabilities in PyTorch. The file has a Dropout in the
// form for evaluation, which drops nothing, or an Attention, which has no dropout.
std::vector<std::string> attentions_without_dropout(const GraphProto &graph);

// Returns the names of nodes that should read the result of a detach(), but read the value before the detach(). The
// exporter's optimizer has dropped the Identity that stood for the call, so the file no longer stops the gradient
// there. Only a detach() of a value that depends on a parameter counts. `kinds` says which initializers are parameters.
std::vector<std::string> readers_of_lost_detach(const GraphProto &graph,
                                                const std::map<std::string, graph::StoredKind> &kinds);

}  // namespace protrain::onnx_import
