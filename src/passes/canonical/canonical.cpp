// The table of all rules, and the test whether an operator may remain.
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

// Returns the table. It is never destroyed, because a thread may still make a session while the process exits.
const Rules &all_rules() {
  static const Rules &rules = *new const Rules([] {
    Rules all = shape_rules();
    all.merge(sequence_rules());
    all.merge(arithmetic_rules());
    all.merge(layer_rules());
    all.merge(recurrent_rules());
    all.merge(loss_rules());
    all.merge(window_rules());
    all.merge(softmax_rules());
    all.merge(channel_rules());
    all.merge(einsum_rules());
    all.merge(index_rules());
    all.merge(gather_rules());
    all.merge(resize_rules());
    all.merge(sample_rules());
    all.merge(signal_rules());
    all.merge(random_rules());
    all.merge(quantize_rules());
    all.merge(contrib_rules());
    all.merge(ml_rules());
    all.merge(channel_block_rules());
    all.merge(contrib_norm_rules());
    all.merge(contrib_attention_rules());
    all.merge(control_flow_rules());
    return all;
  }());
  return rules;
}

}  // namespace

Rule rule_for(std::string_view op) {
  const auto found = all_rules().find(op);
  return found == all_rules().end() ? nullptr : found->second;
}

bool is_core(std::string_view name) {
  const ops::Op *op = ops::find(name);
  return op != nullptr && !op->file_only;
}

}  // namespace protrain::passes
