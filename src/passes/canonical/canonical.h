// Canonical: the visitor of fold()'s forward walk. It absorbs constants into attributes, turns file operators into core
// operators by a table of rules, types the results, and evaluates nodes that depend on constants alone.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/bodies.h"
#include "ops/op.h"
#include "passes/canonical/fold_budget.h"
#include "passes/rewriter.h"

namespace protrain::passes {

// A slice along one axis whose bounds depend on data. It has the elements of `whole` from `start` up to `end`. The
// values `start` and `end` hold one integer each.
struct Cut {
  ValueId whole = ValueId::none;
  std::size_t axis = 0;
  ValueId start = ValueId::none, end = ValueId::none;
};

class Canonical {
 public:
  // `bodies` are the bodies of the graph's If, Loop and Scan nodes. If it is nullptr, such nodes stay as they are.
  Canonical(Rewriter &rewriter, FoldBudget &budget, const graph::Bodies *bodies)
      : rewriter_(rewriter), budget_(budget), bodies_(bodies) {}

  void visit(Node &node);

  // Rules emit nodes by these functions. Each new node goes through visit() too, so a rule may emit nodes that need
  // rules themselves.
  std::vector<ValueId> add_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                               std::size_t output_count);
  ValueId add(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return add_all(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  ValueId scalar(DType dtype, double value) { return rewriter_.constant(graph::Array::scalar(dtype, value)); }
  // Returns the constant of type `type` that `make` computes, and takes its bytes from the budget. Rules call this
  // function for constants that may be large. `key` names all that the elements depend on besides the type. Rules that
  // give the same key and type share one constant. Throws Code::limit if the budget has too little left.
  ValueId constant(const std::string &key, const Type &type, const std::function<graph::Array()> &make);
  ValueId reshape(ValueId x, const Shape &shape);  // x itself if it has that shape
  ValueId transpose(ValueId x, const std::vector<std::int64_t> &perm);
  ValueId stopped_at_zero(ValueId x);  // x, but without a gradient where it is 0
  // Emits a node with operator `op` that computes the outputs of `node`.
  void become(const Node &node, const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Replaces the first output of `node` by `x`, so that readers of the output get `x`.
  void pass(const Node &node, ValueId x);
  // Makes `id` the sequence of `parts`. Gives it the type `type`, because every value needs a type.
  void name_sequence(ValueId id, std::vector<ValueId> parts, const Type &type);
  // Returns the types of the node's outputs, from its present inputs and attributes.
  std::vector<Type> infer(const Node &node) const { return ops::infer(rewriter_.graph(), node); }

  // Puts a copy of the body's nodes in place of the visited node, and returns the body's outputs. `inputs` are values
  // for the body's inputs; `scope` prefixes the names of new values.
  std::vector<ValueId> insert(const graph::Body &body, const std::vector<ValueId> &inputs, const std::string &scope);
  const graph::Bodies *bodies() const { return bodies_; }

  Rewriter &rewriter() { return rewriter_; }
  const Rewriter &rewriter() const { return rewriter_; }
  Type type(ValueId id) const { return rewriter_.type(id); }
  Shape shape(ValueId id) const { return rewriter_.shape(id); }
  const graph::Array *constant_of(ValueId id) const { return rewriter_.constant_of(id); }

  std::map<ValueId, std::vector<ValueId>> sequences;  // by sequence: its parts
  std::map<ValueId, Cut> cuts;                        // by the value that is the cut
  std::map<std::int64_t, ValueId> positions;          // by extent: a constant 0, 1, ...
  std::map<ValueId, std::string> refusals;            // why a node has no core form, by its first output

 private:
  void absorb(Node &node) const;
  void require_tensors(const Node &node) const;
  bool keep_dims_at_zeros(Node &node) const;
  bool replace(Node &node);
  void share_small_constants(Node &node);
  bool evaluate(const Node &node, const ops::Op &op);
  bool settle_empty(const Node &node);
  void make_constant(ValueId id, graph::Array array);  // `id` is an output of a node that is now evaluated

  Rewriter &rewriter_;
  FoldBudget &budget_;
  const graph::Bodies *bodies_;
  std::map<std::string, ValueId> small_constants_;         // by type and bytes
  std::map<std::string, ValueId> rules_constants_;         // by key and type: the results of constant()
  std::map<std::string, std::vector<ValueId>> evaluated_;  // by operator, attributes and inputs
};

// If the node's output is a Cut, records this in c.cuts. If the node reduces a Cut, replaces the node and returns true.
// Otherwise returns false.
bool follow_cut(Canonical &c, const Node &node);

// Returns true if the rule replaced the node. False: the node is a core operator already, or it has no core form.
using Rule = bool (*)(Canonical &, Node &);
using Rules = std::map<std::string_view, Rule>;

Rules shape_rules();                 // Reshape and similar operators, Split, Slice, Cast, ...
Rules sequence_rules();              // sequences of tensors, and operators that read sequences
Rules arithmetic_rules();            // reductions, variadic operators, MatMul and Gemm
Rules layer_rules();                 // normalizations, attention, rotary embeddings
Rules recurrent_rules();             // LSTM, GRU, RNN
Rules loss_rules();                  // SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss
Rules softmax_rules();               // Softmax of older opsets, Hardmax
Rules channel_rules();               // normalizations over batches, groups and instances, LRN and LpNormalization
Rules einsum_rules();                // Einsum
Rules index_rules();                 // GatherND, scatters, OneHot, Pad by copies
Rules gather_rules();                // Gather at constant indices
Rules resize_rules();                // Resize
Rules sample_rules();                // AffineGrid, GridSample, RoiAlign
Rules signal_rules();                // Fourier transforms
Rules window_rules();                // convolution and pooling
Rules random_rules();                // Dropout, and operators that draw noise
Rules quantize_rules();              // quantised tensors, and com.microsoft::MatMulNBits
Rules contrib_rules();               // com.microsoft: activations, products and convolutions with activations
Rules channel_block_rules();         // com.microsoft.nchwc
Rules contrib_norm_rules();          // com.microsoft: normalizations, with sums and embeddings before them
Rules contrib_attention_rules();     // com.microsoft: attention, rotary embeddings, biases by distance
Rules ml_rules();                    // ai.onnx.ml
Rules control_flow_rules();          // If, Loop, Scan
Rule rule_for(std::string_view op);  // nullptr if there is none

// Returns the number of samples in a batch: axis 0 of the model's first input that has axes.
std::int64_t batch_of(const Graph &graph);
// Returns the number of samples along axis 0 of `shape`, for random numbers. Returns `batch` if the axis has a multiple
// of `batch` elements, as in (batch, ...) and (batch * positions, ...). Returns 0 if axis 0 is missing or empty.
// Otherwise returns 1: the whole tensor counts as the first sample of the batch, so that its random numbers differ from
// batch to batch.
std::int64_t samples_in(const Shape &shape, std::int64_t batch);

bool has(const Node &node, std::size_t input);           // true if the node has that input
Node with_output(const Node &node, std::size_t output);  // the node with that output alone
bool is_core(std::string_view op);                       // true if it may remain after canonicalization
bool reads_sequences(std::string_view op);               // true if its inputs may be sequences
inline bool same(const Attributes &a, const Attributes &b) { return a.print() == b.print(); }

}  // namespace protrain::passes
