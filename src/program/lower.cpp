// Plan + graph -> Program: walks the order of computation once and emits each node with the moves that belong to it.
#include <algorithm>

#include "base/error.h"
#include "ops/op.h"
#include "program/builder.h"
#include "program/exchange.h"
#include "program/owners.h"
#include "program/sequence.h"
#include "program/storage.h"
#include "program/transfers.h"
#include "program/updates.h"

namespace protrain::program {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Phase;
using graph::ValueId;
using plan::BlockMode;

// Facts about each storage root (storage.h).
struct Roots {
  std::vector<Owner> owner;
  std::vector<std::size_t> parameter;  // kNoParameter: the root is no parameter
  std::vector<bool> rests_on_disk;     // true: the root is a gradient that rests on the disk
};

// Returns the update that stores the new values of state that forward changes, such as running means. It does nothing
// if the step's status is not 0, so it comes after all checks. It has no targets if the Program changes no such state.
Instruction commit_of(const LoweringInput &source, const State &state, const Whereabouts &where) {
  Instruction commit{.kind = Kind::update};
  for (std::size_t p = 0; source.updates && p < source.changed.size(); ++p) {
    if (source.changed[p] == ValueId::none) continue;
    const State::Parameter &parameter = state.parameters[p];
    commit.targets.push_back({.parameter = p, .bytes = bytes_of(source.graph, source.graph.parameters[p])});
    commit.bytes += commit.targets.back().bytes;
    commit.inputs.push_back(where.of(source.changed[p]));
    commit.outputs.push_back({state.chunks[parameter.chunk].weights, parameter.whole_at});
  }
  commit.inputs.push_back({state.status, 0});
  return commit;
}

// Lowering walks the sequence once. Before the walk, Transfers decides what moves at which item, and Updates decides
// what happens to gradients. The walk then emits nodes, moves and updates in one order, so the Program depends on graph
// and plan alone.
class Lowering {
 public:
  Lowering(const LoweringInput &source, const plan::Plan &plan, const State &state, const Workspace &workspace)
      : source_(source),
        graph_(source.graph),
        plan_(plan),
        state_(state),
        workspace_(workspace),
        builder_(state, plan),
        updates_(source_, plan, state, builder_, where_) {}

  Program run() {
    bind_state();
    sequence_ = sequence(graph_, where_.roots, plan_.blocks, wanted());
    updates_.schedule(sequence_);
    updates_.bind();
    if (source_.settles) return settle_all();
    roots_.rests_on_disk = gradients_on_disk();
    transfers_ = transfers({graph_, plan_, state_, where_.roots, roots_.parameter, sequence_, updates_});
    for (std::size_t i = 0; i < sequence_.items.size(); ++i) walk(i);
    updates_.end_settling();
    builder_.begin_stage();
    updates_.finish();
    if (Instruction commit = commit_of(source_, state_, where_); !commit.targets.empty())
      builder_.emit(std::move(commit));
    builder_.program.loss = keep_to_end(source_.loss);
    if (source_.updates) builder_.program.norm = keep_to_end(source_.norm);
    for (std::size_t p = 0; source_.updates && p < source_.squared_norms.size(); ++p)
      builder_.program.squared_norms.push_back(keep_to_end(source_.squared_norms[p]));
    builder_.program.weight = keep_to_end(source_.weight);
    for (ValueId output : source_.outputs) {
      keep_to_end(output);
      builder_.program.outputs.push_back(where_.of(output));
    }
    builder_.program.commit = first_commit();
    return builder_.finish();
  }

 private:
  Program settle_all() {
    for (std::size_t c = 0; c < plan_.chunks.size(); ++c)
      if (updates_.defers(c)) {
        builder_.begin_stage();
        updates_.settle(c);
      }
    updates_.end_settling();
    builder_.program.commit = first_commit();
    return builder_.finish();
  }

  // Returns the first instruction that changes state which outlives the step: an Update, or an addition to a sum of
  // gradients. Updates that are left over from the previous step do not count, because they are done in any case.
  std::size_t first_commit() const {
    const auto &instructions = builder_.program.instructions;
    const bool accumulates = std::ranges::any_of(graph_.nodes(), ops::works_in_place);
    const auto commits = [&](const Instruction &i) {
      if (i.earlier) return false;
      if (i.kind == Kind::update) return true;
      const bool rests = std::ranges::any_of(i.outputs, [&](const Operand &out) {
        return out.buffer != BufferId::none && builder_.buffer(out.buffer).persistent;
      });
      return accumulates && i.kind != Kind::check && rests;
    };
    return static_cast<std::size_t>(std::ranges::find_if(instructions, commits) - instructions.begin());
  }

  std::vector<ValueId> wanted() const {
    std::vector<ValueId> values = {source_.loss, source_.weight};
    values.insert(values.end(), source_.outputs.begin(), source_.outputs.end());
    values.insert(values.end(), source_.gradients.begin(), source_.gradients.end());
    if (source_.updates) {
      values.insert(values.end(), source_.squared_norms.begin(), source_.squared_norms.end());
      values.insert(values.end(), source_.shard_norms.begin(), source_.shard_norms.end());
      values.insert(values.end(), source_.changed.begin(), source_.changed.end());
      values.insert(values.end(), {source_.norm, source_.scale});
    }
    // Adds all results computed in place. Some are in no list above, such as the count of targets.
    for (const Node &node : graph_.nodes())
      if (ops::works_in_place(node)) values.push_back(node.outputs[0]);
    return values;
  }

  void bind_state() {
    where_.roots = storage_roots(graph_);
    roots_.owner = owners(source_, where_.roots);
    where_.of_root.resize(graph_.value_count());
    where_.of_chunk.assign(plan_.chunks.size(), BufferId::none);
    // Gives inputs, constants and accumulators the buffers that the state has for them. The graphs that share the state
    // agree only on values with low ids. A higher id may be a constant in one graph and a computed value in another. So
    // a value that a node of this graph computes is skipped.
    for (const auto &[value, buffer] : state_.of_value[source_.binding])
      if (index(value) < graph_.value_count() && graph_.value(value).origin != Origin::node)
        where_.of_root[index(value)] = {buffer, 0};
    roots_.parameter.assign(graph_.value_count(), kNoParameter);
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      roots_.parameter[index(graph_.parameters[p])] = p;
      if (const State::Parameter &parameter = state_.parameters[p]; state_.rests_whole_on_device(parameter.chunk))
        where_.of_root[index(graph_.parameters[p])] = {state_.chunks[parameter.chunk].weights, parameter.whole_at};
    }
  }

  // Returns for each storage root whether it is a gradient that rests on the disk. If several parameters share one
  // gradient, the first parameter decides where the gradient rests.
  std::vector<bool> gradients_on_disk() const {
    std::vector<bool> found(graph_.value_count(), false);
    for (std::size_t p = source_.gradients.size(); p-- > 0;)
      if (const BufferId home = state_.gradient(p).buffer;
          source_.gradients[p] != ValueId::none && home != BufferId::none)
        found[index(where_.roots[index(source_.gradients[p])])] = builder_.buffer(home).tier == Tier::disk;
    return found;
  }

  void walk(std::size_t i) {
    const Item &item = sequence_.items[i];
    const Node &node = graph_.node(item.node);
    if (i == transfers_.settled_by) updates_.end_settling();
    if (i == 0 || item.stage != sequence_.items[i - 1].stage) builder_.begin_stage();
    for (ValueId root : transfers_.swaps_in[i]) swap_in(root);
    for (std::size_t chunk : transfers_.fetches[i]) fetch(chunk);
    for (std::size_t chunk : transfers_.settles[i]) updates_.settle(chunk);
    updates_.begin_item(i);
    updates_.before(node);
    if (ops::is_between_ranks(node)) emit_exchange(item, node);
    if (ops::has_kernel(node)) emit_run(item, node);
    const bool makes_loss = std::ranges::find(node.outputs, source_.loss) != node.outputs.end();
    if (source_.loss != ValueId::none && makes_loss && !item.again) emit_loss_check();
    for (ValueId root : transfers_.swaps_out[i]) swap_out(root);
    updates_.after_item(i);
  }

  void fetch(std::size_t chunk) {
    const BufferId nearest = updates_.begin_settling(chunk);
    where_.of_chunk[chunk] =
        state_.chunks[chunk].sharded
            ? gather_weights({graph_, state_, plan_.chunks[chunk].parameters, chunk}, builder_, nearest)
            : builder_.bring({nearest, 0}, builder_.buffer(nearest).bytes, Tier::device).buffer;
  }

  Operand input(ValueId id) const {
    if (id == ValueId::none) return {};
    const ValueId root = where_.roots[index(id)];
    const std::size_t p = roots_.parameter[index(root)];
    if (p != kNoParameter && !state_.rests_whole_on_device(state_.parameters[p].chunk))
      return {where_.of_chunk[state_.parameters[p].chunk], state_.parameters[p].whole_at};
    const Operand operand = where_.of_root[index(root)];
    require(operand.buffer != BufferId::none, Code::internal, graph_.value(id).name, "the value is nowhere");
    return operand;
  }

  // Returns the place to which the item writes the value. A value keeps the place that it has if that place outlives
  // the step, or if the node works in place. Any other value gets a new buffer, and later items read the value there.
  // There is one exception: if the item computes a value again although other blocks use the value, the first copy is
  // still in memory, and later items read the first copy.
  Operand output(const Item &item, ValueId id) {
    if (id == ValueId::none) return {};
    const ValueId root = where_.roots[index(id)];
    Operand &at = where_.of_root[index(root)];
    const Node &node = graph_.node(item.node);
    const bool placed = at.buffer != BufferId::none && builder_.buffer(at.buffer).persistent;
    if (placed || ops::works_in_place(node)) return at;
    const Operand fresh = {add_transient(root, item.again ? Owner::recomputed : roots_.owner[index(root)]), 0};
    if (!item.again || sequence_.block[index(root)] == node.block) at = fresh;
    return fresh;
  }

  BufferId add_transient(ValueId root, Owner owner) {
    const bool to_disk =
        plan_.shared_memory && (sequence_.mode[index(root)] == BlockMode::swap || roots_.rests_on_disk[index(root)]);
    return builder_.add(graph_.value(root).name, Tier::device, bytes_of(graph_, root),
                        alignment_in(to_disk ? Tier::disk : Tier::device), owner);
  }

  // Emits the exchange of an AllToAll or AllGather node. Its operands lie in the memory that a Channel reaches. If this
  // is the host's memory, inputs on the device are copied there first, and the results are copied back to the device.
  void emit_exchange(const Item &item, const Node &node) {
    std::vector<Operand> inputs, outputs, received;
    for (ValueId in : node.inputs) inputs.push_back(builder_.bring(input(in), bytes_of(graph_, in), state_.exchanges));
    for (ValueId out : node.outputs) {
      outputs.push_back(output(item, out));
      received.push_back(outputs.back());
      if (state_.exchanges != Tier::device)
        received.back() = {builder_.add(graph_.value(out).name, state_.exchanges, bytes_of(graph_, out)), 0};
    }
    Instruction exchange = exchange_of(graph_, node, inputs, received);
    exchange.node = item.node;
    builder_.emit(std::move(exchange));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (received[i] != outputs[i]) builder_.move(received[i], outputs[i], bytes_of(graph_, node.outputs[i]));
  }

  void emit_run(const Item &item, const Node &node) {
    Instruction run{.kind = Kind::run, .node = item.node, .again = item.again};
    run.inputs.reserve(node.inputs.size());
    run.outputs.reserve(node.outputs.size());
    for (ValueId in : node.inputs) run.inputs.push_back(input(in));
    for (ValueId out : node.outputs) run.outputs.push_back(output(item, out));
    if (const std::uint64_t bytes = workspace_.nodes[index(item.node)]; bytes > 0)
      run.scratch = builder_.add("scratch", Tier::device, bytes);
    builder_.emit(std::move(run));
  }

  // Emits the check that the loss is finite. In training with several ranks the loss is a vector of all ranks' losses.
  void emit_loss_check() {
    const graph::Type &type = graph_.value(source_.loss).type;
    const auto losses = static_cast<std::size_t>(element_count(type.shape));
    const Operand first = where_.of(source_.loss);
    Instruction check{.kind = Kind::check, .outputs = {{state_.status, 0}}};
    check.words.assign(losses, StatusWord::loss());
    for (std::size_t i = 0; i < losses; ++i)
      check.inputs.push_back({first.buffer, first.offset + i * size_of(type.dtype)});
    builder_.emit(std::move(check));
  }

  // Moves an activation to the host, or to the disk if host and device share their memory.
  void swap_out(ValueId root) {
    const Tier tier = plan_.shared_memory ? Tier::disk : Tier::host;
    const Operand from = where_.of_root[index(root)];
    const std::uint64_t bytes = bytes_of(graph_, root);
    const BufferId away =
        builder_.add(graph_.value(root).name, tier, bytes, alignment_in(tier), roots_.owner[index(root)]);
    builder_.swap(from, {away, 0}, bytes);
    where_.of_root[index(root)] = {away, 0};
  }

  void swap_in(ValueId root) {
    const Operand away = where_.of_root[index(root)];
    const BufferId back = add_transient(root, roots_.owner[index(root)]);
    builder_.swap(away, {back, 0}, bytes_of(graph_, root));
    where_.of_root[index(root)] = {back, 0};
  }

  BufferId keep_to_end(ValueId value) {
    if (value == ValueId::none) return BufferId::none;
    const BufferId id = where_.of(value).buffer;
    builder_.keep_to_end(id);
    return id;
  }

  const LoweringInput &source_;
  const Graph &graph_;
  const plan::Plan &plan_;
  const State &state_;
  const Workspace &workspace_;
  Whereabouts where_;
  Builder builder_;
  Updates updates_;
  Sequence sequence_;
  Roots roots_;
  Transfers transfers_;
};

}  // namespace

Program lower(const LoweringInput &source, const plan::Plan &plan, const State &state, const Workspace &workspace) {
  return Lowering(source, plan, state, workspace).run();
}

}  // namespace protrain::program
