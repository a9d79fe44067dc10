// The past (KV cache) of a decoder: inputs with keys and values of earlier tokens, as files for generation have them. A
// model that is trained sees whole sequences, so these inputs are empty.
#pragma once

#include <map>
#include <string>

#include "onnx_import/model.h"

namespace protrain::draft {

// True for an input of floats with three or more axes whose name contains "past" or "cache", such as
// "past_key_values.0.key", "past_0" and "key_cache_0".
bool holds_past(const onnx_import::Input &input);

// Returns each symbolic dim that counts earlier tokens, with the name of an input that has this dim.
std::map<std::string, std::string> past_dims(const onnx_import::Model &model);

// Binds the dims of past_dims() to 0, as the option past=none asks. Code::arg if past_dims() is empty, or if `dims`
// already binds one of these dims to a size other than 0.
void bind_past(const onnx_import::Model &model, onnx_import::DimBindings &dims);

// Throws Code::shape if `dims` does not bind all dims of past_dims().
void require_past_bound(const onnx_import::Model &model, const onnx_import::DimBindings &dims);

// Drops inputs that hold a past if nothing reads them. A decoder has such inputs if it was exported with two branches,
// one with and one without a past, and the branch without a past is trained.
void drop_unread_past(const onnx_import::Model &model, graph::Graph &graph);

}  // namespace protrain::draft
