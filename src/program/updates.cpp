#include "program/updates.h"

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"
#include "program/exchange.h"

namespace protrain::program {

namespace {

using graph::Origin;
using graph::ValueId;

constexpr std::size_t kStatusBytes = sizeof(std::uint32_t);

// True if the factor by which Updates multiply gradients depends on the norm of all gradients.
bool scales_by_norm(const LoweringInput &source) {
  if (source.scale == ValueId::none) return false;
  return source.graph.node(source.graph.value(source.scale).producer).inputs[0] != ValueId::none;
}

}  // namespace

Updates::Updates(const LoweringInput &source, const plan::Plan &plan, const State &state, Builder &builder,
                 Whereabouts &where)
    : source_(source),
      plan_(plan),
      state_(state),
      builder_(builder),
      where_(where),
      waits_(plan.order == plan::OptimizerOrder::barrier || !source.accumulators.empty()),
      schedule_{
          .checks = {}, .after = {}, .before = {}, .due = std::vector<std::vector<std::size_t>>(plan.chunks.size())},
      left_(plan.chunks.size(), 0),
      working_(plan.chunks.size()),
      unsettled_(plan.chunks.size(), false) {
  require(waits_ || !scales_by_norm(source), Code::internal, "plan",
          "gradients that are scaled by their norm cannot be applied before it is known");
  require(!plan::defers(plan) || source.accumulators.empty(), Code::internal, "plan",
          "sums of gradients over batches cannot wait for the next step");
}

Tier Updates::optimizer_place(std::size_t chunk) const {
  const Tier rest = resting_place(chunk);
  return rest == Tier::device ? Tier::device : plan_.chunks[chunk].update;
}

std::uint64_t Updates::bytes_of_parameter(std::size_t p) const {
  return elements_of(p) * size_of(source_.graph.value(source_.graph.parameters[p]).type.dtype);
}

std::uint64_t Updates::bytes_of_gradient(std::size_t p) const { return bytes_of(source_.graph, source_.gradients[p]); }

// Finds two items for each gradient: the item after which the gradient is complete, and the item after which its norm
// is checked.
//   A gradient that outlives backward is complete after the last item that reads or writes the gradient. Its norm is
// checked after the item that makes the norm. Any other gradient is applied at once. For such a gradient both items are
// the same: the first item after which the norm is known and no node reads the weight any more. (A weight may have
// several readers, such as head and embedding.) With several ranks the norm over all ranks is checked too. This norm is
// known only at the end of backward.
void Updates::schedule(const Sequence &sequence) {
  schedule_.checks.resize(sequence.items.size());
  schedule_.after.resize(sequence.items.size());
  schedule_.before.resize(sequence.items.size());
  std::vector<std::size_t> last_touch(source_.graph.value_count(), 0), item_of(source_.graph.node_count(), 0), begins;
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    const graph::Node &node = source_.graph.node(sequence.items[i].node);
    for (const auto *ids : {&node.inputs, &node.outputs})
      for (ValueId id : *ids)
        if (id != ValueId::none) last_touch[index(where_.roots[index(id)])] = i;
    if (!sequence.items[i].again) item_of[index(sequence.items[i].node)] = i;
    if (sequence.items[i].stage >= begins.size()) begins.push_back(i);
  }
  const auto made_at = [&](ValueId id) {
    const graph::NodeId producer = source_.graph.value(id).producer;
    return producer == graph::NodeId::none ? 0 : item_of[index(producer)];
  };
  for (std::size_t p = 0; p < source_.gradients.size(); ++p) {
    if (source_.gradients[p] == ValueId::none) continue;
    const bool by_shard = !source_.shard_norms.empty();
    const ValueId norm = by_shard ? source_.shard_norms[p] : source_.squared_norms[p];
    const std::size_t known = made_at(source_.updates ? norm : source_.gradients[p]);
    const auto last = [&](ValueId id) { return last_touch[index(where_.roots[index(id)])]; };
    const bool waits = rests(chunk_of(p));
    const std::size_t item = waits ? last(source_.gradients[p]) : std::max(known, last(source_.graph.parameters[p]));
    if (source_.updates) schedule_.checks[waits ? known : item].push_back({p, norm});
    if (source_.updates && by_shard)
      schedule_.checks[made_at(source_.squared_norms[p])].push_back({p, source_.squared_norms[p]});
    schedule_.after[item].push_back(p);
    schedule_.due[chunk_of(p)].push_back(item);
    ++left_[chunk_of(p)];
  }
  if (!waits_ && source_.scale != ValueId::none) schedule_.scale = made_at(source_.scale);
  for (std::size_t c = 0; c < schedule_.due.size(); ++c) {
    unsettled_[c] = defers(c);
    std::ranges::sort(schedule_.due[c]);
    if (schedule_.due[c].empty() || rests(c) || in_place(c) || by_pieces(c)) continue;
    const std::size_t stage = sequence.items[schedule_.due[c].front()].stage;
    schedule_.before[begins[stage > 0 ? stage - 1 : 0]].push_back(c);
  }
}

std::vector<std::size_t> Updates::device_uses(std::size_t chunk) const {
  if (rests(chunk) || schedule_.due[chunk].empty() || optimizer_place(chunk) != Tier::device || is_sharded(chunk))
    return {};
  // Counts all items from the chunk's first Update to its last as uses, so that the chunk stays on the device in
  // between. If the chunk left the device and was fetched again, the fetched weights would lack the first Update.
  std::vector<std::size_t> uses;
  for (std::size_t i = schedule_.due[chunk].front(); i <= schedule_.due[chunk].back(); ++i) uses.push_back(i);
  return uses;
}

void Updates::bind() {
  std::vector<int> shared(source_.graph.value_count(), 0);
  for (ValueId id : source_.gradients)
    if (id != ValueId::none) ++shared[index(where_.roots[index(id)])];
  for (std::size_t p = 0; p < source_.gradients.size(); ++p) {
    if (source_.gradients[p] == ValueId::none) continue;
    const ValueId root = where_.roots[index(source_.gradients[p])];
    const Origin origin = source_.graph.value(root).origin;
    const bool own = shared[index(root)] == 1 && (origin == Origin::node || origin == Origin::accumulator) &&
                     where_.of_root[index(root)].buffer == BufferId::none;
    if (!own) continue;
    if (rests(chunk_of(p)) && resting_place(chunk_of(p)) == Tier::device)
      where_.of_root[index(root)] = state_.gradient(p);
    if (state_.kept[p] != BufferId::none && builder_.buffer(state_.kept[p]).tier == Tier::device)
      where_.of_root[index(root)] = {state_.kept[p], 0};
  }
}

void Updates::before(const graph::Node &node) {
  if (!ops::works_in_place(node) || where_.of(node.inputs[0]).buffer != BufferId::none) return;
  const auto found = std::ranges::find(source_.accumulators, node.inputs[0]);
  require(found != source_.accumulators.end(), Code::internal, node.name, "a sum of gradients that is no parameter's");
  const auto p = static_cast<std::size_t>(found - source_.accumulators.begin());
  where_.of_root[index(where_.roots[index(node.inputs[0])])] =
      builder_.bring(state_.gradient(p), bytes_of_gradient(p), Tier::device);
}

void Updates::begin_item(std::size_t item) {
  for (std::size_t chunk : schedule_.before[item]) working_[chunk] = bring_chunk(chunk);
}

void Updates::after_item(std::size_t item) {
  if (item == schedule_.scale) check_scale();
  const BufferId verdict = schedule_.checks[item].empty() ? BufferId::none : check(schedule_.checks[item]);
  if (!schedule_.after[item].empty()) complete(schedule_.after[item], verdict);
}

// Brings the chunk's arrays to the optimizer. Weights that are on the device for compute are not brought again.
Updates::Working Updates::bring_chunk(std::size_t chunk) {
  const State::Chunk &home = state_.chunks[chunk];
  const Tier place = optimizer_place(chunk);
  const auto bring = [&](BufferId id) { return builder_.bring({id, 0}, builder_.buffer(id).bytes, place).buffer; };
  Working working;
  if (rests(chunk) || place != Tier::device || is_sharded(chunk)) working.weights = bring(home.weights);
  for (BufferId array : home.optimizer) working.optimizer.push_back(bring(array));
  if (!rests(chunk)) return working;
  for (std::size_t p : plan_.chunks[chunk].parameters)
    if (updates(p)) working.gradients.push_back(builder_.bring(state_.gradient(p), bytes_of_gradient(p), place));
  return working;
}

void Updates::store_chunk(std::size_t chunk, const Working &working) {
  const State::Chunk &home = state_.chunks[chunk];
  const auto store = [&](BufferId from, BufferId to) {
    if (from != to) builder_.store({from, 0}, {to, 0}, builder_.buffer(to).bytes);
  };
  store(working.weights, home.weights);
  for (std::size_t i = 0; i < home.optimizer.size(); ++i) store(working.optimizer[i], home.optimizer[i]);
}

void Updates::complete(const std::vector<std::size_t> &parameters, BufferId verdict) {
  for (std::size_t p : parameters) keep(p);
  std::vector<std::size_t> at_once;
  for (std::size_t p : parameters) {
    if (!rests(chunk_of(p))) {
      at_once.push_back(p);
      continue;
    }
    const Operand at = where_.of(source_.gradients[p]), home = state_.gradient(p);
    if (at != home && bytes_of_gradient(p) > 0) builder_.store(at, home, bytes_of_gradient(p));
  }
  if (!at_once.empty()) update_at_once(at_once, verdict);
}

// Emits the check of the gradients' norms, which updates the status. If the host applies one of these gradients right
// after the check, the check also writes a copy of the status. Returns this copy; none if there is no copy. The host's
// Updates read the copy, because later checks may change the status before these Updates run.
BufferId Updates::check(const std::vector<Checked> &norms) {
  Instruction check{.kind = Kind::check, .element = DType::f64, .outputs = {{state_.status, 0}}};
  BufferId copy = BufferId::none;
  for (const auto &[p, norm] : norms) {
    check.words.push_back(StatusWord::gradient(p));
    check.inputs.push_back(where_.of(norm));
    const bool at_once = source_.shard_norms.empty() || norm == source_.shard_norms[p];
    if (!at_once || copy != BufferId::none || rests(chunk_of(p)) || optimizer_place(chunk_of(p)) != Tier::host)
      continue;
    copy = builder_.add("status", Tier::device, kStatusBytes);
    check.outputs.push_back({copy, 0});
  }
  builder_.emit(std::move(check));
  return copy;
}

// Emits the check that the factor by which Updates multiply gradients is finite. If every label of the step was
// ignored, the factor is 1 / 0, although the gradients are finite.
void Updates::check_scale() {
  builder_.emit({.kind = Kind::check,
                 .words = {StatusWord::loss()},
                 .inputs = {where_.of(source_.scale)},
                 .outputs = {{state_.status, 0}}});
}

void Updates::keep(std::size_t p) {
  if (state_.kept[p] == BufferId::none) return;
  const Operand at = where_.of(source_.gradients[p]), kept = {state_.kept[p], 0};
  if (at != kept) builder_.move(at, kept, bytes_of_gradient(p));
}

void Updates::update_at_once(const std::vector<std::size_t> &parameters, BufferId verdict) {
  Operand on_host;
  if (verdict != BufferId::none) on_host = builder_.bring({verdict, 0}, kStatusBytes, Tier::host);
  if (verdict != BufferId::none && source_.scale != ValueId::none && scale_on_host_.buffer == BufferId::none)
    scale_on_host_ = builder_.bring(where_.of(source_.scale), sizeof(float), Tier::host);
  const auto status = [&](Tier place) {
    std::vector<Operand> operands = {place == Tier::host ? on_host : Operand{state_.status, 0}};
    if (source_.scale != ValueId::none)
      operands.push_back(place == Tier::host ? scale_on_host_ : where_.of(source_.scale));
    return operands;
  };
  UpdateGroups groups;
  for (std::size_t p : parameters) {
    const std::size_t chunk = chunk_of(p);
    const Tier place = optimizer_place(chunk);
    const Operand gradient = where_.of(source_.gradients[p]);
    if (!updates(p)) continue;
    if (!by_pieces(chunk)) {
      add(p, in(working(chunk), p, builder_.bring(gradient, bytes_of_gradient(p), place)), groups);
      continue;
    }
    Arrays whole = at_rest(p);
    whole.gradient = gradient;
    if (place == Tier::device && !is_sharded(chunk)) whole.weights.buffer = where_.of_chunk[chunk];
    update_by_pieces(p, whole, status(place));
  }
  for (const auto &[key, group] : groups) emit_update(group, status(key.first));
  for (std::size_t p : parameters) {
    const std::size_t chunk = chunk_of(p);
    if (by_pieces(chunk) || --left_[chunk] > 0) continue;
    if (!in_place(chunk)) store_chunk(chunk, working(chunk));
    gather_if_whole(chunk);
  }
}

// Returns the places of a chunk's arrays while the optimizer updates the chunk. Only called in overlap order.
Updates::Working Updates::working(std::size_t chunk) const {
  if (in_place(chunk)) return {state_.chunks[chunk].weights, state_.chunks[chunk].optimizer};
  Working working = working_[chunk];
  if (optimizer_place(chunk) == Tier::device && !is_sharded(chunk)) working.weights = where_.of_chunk[chunk];
  return working;
}

Updates::Arrays Updates::in(const Working &working, std::size_t p, Operand gradient) const {
  const State::Parameter &parameter = state_.parameters[p];
  Arrays arrays = {.gradient = gradient, .weights = {working.weights, parameter.weights_at}};
  for (std::size_t i = 0; i < working.optimizer.size(); ++i)
    arrays.optimizer.push_back({working.optimizer[i], state_.optimizer(p, i).offset});
  return arrays;
}

void Updates::add(std::size_t p, const Arrays &at, UpdateGroups &to) const {
  UpdateGroup &group = to[{optimizer_place(chunk_of(p)), source_.graph.value(source_.gradients[p]).type.dtype}];
  group.targets.push_back({.parameter = p, .bytes = bytes_of_parameter(p), .group = state_.parameters[p].group});
  group.arrays.push_back(at);
}

void Updates::emit_update(const UpdateGroup &group, const std::vector<Operand> &verdict) {
  const std::size_t first = group.targets[0].parameter;
  Instruction update{.kind = Kind::update,
                     .queue = optimizer_place(chunk_of(first)) == Tier::host ? Queue::host : Queue::compute,
                     .targets = group.targets,
                     .element = source_.graph.value(source_.gradients[first]).type.dtype};
  for (const Target &target : group.targets) update.bytes += target.bytes;
  for (const Arrays &at : group.arrays) {
    update.inputs.push_back(at.gradient);
    update.outputs.push_back(at.weights);
    update.outputs.insert(update.outputs.end(), at.optimizer.begin(), at.optimizer.end());
  }
  update.inputs.insert(update.inputs.end(), verdict.begin(), verdict.end());
  builder_.emit(std::move(update));
}

bool Updates::by_pieces(std::size_t chunk) const {
  const std::vector<std::size_t> &parameters = plan_.chunks[chunk].parameters;
  return resting_place(chunk) != Tier::device && parameters.size() == 1 &&
         elements_of(parameters[0]) > piece_elements(parameters[0]);
}

// Returns the number of elements that one Update changes when a parameter is updated piece by piece. The parameter's
// arrays may have elements of different sizes. This number of elements fills one piece of the disk in the array with
// the smallest elements, and several pieces in an array with larger elements. Ignores arrays that move whole.
std::uint64_t Updates::piece_elements(std::size_t p) const {
  std::uint64_t smallest = size_of(source_.graph.value(source_.graph.parameters[p]).type.dtype);
  for (std::size_t i = 0; i < state_.optimizer_arrays.size(); ++i)
    if (!moves_whole(i)) smallest = std::min(smallest, size_of(state_.optimizer_arrays[i].dtype));
  return plan_.piece_bytes / smallest;
}

Updates::Arrays Updates::at_rest(std::size_t p) const {
  Arrays arrays = {.gradient = state_.gradient(p), .weights = state_.weights(p)};
  for (std::size_t i = 0; i < state_.optimizer_arrays.size(); ++i) arrays.optimizer.push_back(state_.optimizer(p, i));
  return arrays;
}

Updates::ByteRange Updates::range_of(const Piece &piece, std::uint64_t element_bytes, std::uint64_t end) const {
  const std::uint64_t begin = piece.begin * element_bytes;
  return {.begin = begin, .bytes = std::min(end - begin, piece_elements(piece.parameter) * element_bytes)};
}

Updates::ByteRange Updates::range_of_weights(const Piece &piece) const {
  const std::uint64_t end = builder_.buffer(state_.chunks[chunk_of(piece.parameter)].weights).bytes;
  return range_of(piece, size_of(source_.graph.value(source_.graph.parameters[piece.parameter]).type.dtype), end);
}

Updates::ByteRange Updates::range_of_array(const Piece &piece, std::size_t which) const {
  const std::uint64_t end = builder_.buffer(state_.chunks[chunk_of(piece.parameter)].optimizer[which]).bytes;
  return range_of(piece, size_of(state_.optimizer_arrays[which].dtype), end);
}

// Brings one piece of each array to the optimizer. Arrays that move whole are there already, so they are not brought.
// The weights and the other arrays of the optimizer may have padding at the end, which is brought with the last piece.
// The gradient has no padding.
Updates::Arrays Updates::bring_piece(const Arrays &whole, const Piece &piece) {
  const Tier place = optimizer_place(chunk_of(piece.parameter));
  const auto bring = [&](Operand at, const ByteRange &run) {
    return builder_.bring({at.buffer, at.offset + run.begin}, run.bytes, place);
  };
  const std::size_t element_bytes = size_of(source_.graph.value(source_.gradients[piece.parameter]).type.dtype);
  const ByteRange of_gradient = range_of(piece, element_bytes, bytes_of_gradient(piece.parameter));
  Arrays near = {.gradient = bring(whole.gradient, of_gradient),
                 .weights = bring(whole.weights, range_of_weights(piece))};
  for (std::size_t i = 0; i < whole.optimizer.size(); ++i) {
    const Operand at = whole.optimizer[i];
    near.optimizer.push_back(moves_whole(i)
                                 ? Operand{at.buffer, at.offset + state_.optimizer_arrays[i].bytes(piece.begin)}
                                 : bring(at, range_of_array(piece, i)));
  }
  return near;
}

void Updates::store_piece(const Arrays &near, const Piece &piece, bool weights) {
  const Arrays home = at_rest(piece.parameter);
  const auto store = [&](Operand from, Operand array, const ByteRange &run) {
    const Operand to = {array.buffer, array.offset + run.begin};
    if (from != to) builder_.store(from, to, run.bytes);
  };
  if (weights) store(near.weights, home.weights, range_of_weights(piece));
  for (std::size_t i = 0; i < home.optimizer.size(); ++i)
    if (!moves_whole(i)) store(near.optimizer[i], home.optimizer[i], range_of_array(piece, i));
}

// Emits the update of one large parameter, piece by piece. While the optimizer works on one piece, the next piece is
// brought. `whole` holds the places of the whole arrays. An updated piece is stored at once. But weights that were
// fetched for compute, and arrays that move whole, are stored at the end.
void Updates::update_by_pieces(std::size_t p, Arrays whole, const std::vector<Operand> &verdict) {
  const std::uint64_t elements = elements_of(p), step = piece_elements(p);
  const std::uint64_t element_bytes = bytes_of_parameter(p) / elements;
  const Arrays rest = at_rest(p);
  const bool fetched = whole.weights != rest.weights;
  const auto whole_bytes = [&](Operand at) { return builder_.buffer(at.buffer).bytes; };
  for (std::size_t i = 0; i < whole.optimizer.size(); ++i)
    if (moves_whole(i))
      whole.optimizer[i] =
          builder_.bring(rest.optimizer[i], whole_bytes(rest.optimizer[i]), optimizer_place(chunk_of(p)));
  Arrays next = bring_piece(whole, {.parameter = p, .begin = 0});
  for (std::uint64_t begin = 0; begin < elements; begin += step) {
    const Arrays near = next;
    builder_.begin_stage();
    if (begin + step < elements) next = bring_piece(whole, {.parameter = p, .begin = begin + step});
    const std::uint64_t bytes = std::min(elements - begin, step) * element_bytes;
    emit_update({.targets = {{.parameter = p, .bytes = bytes, .group = state_.parameters[p].group}}, .arrays = {near}},
                verdict);
    store_piece(near, {.parameter = p, .begin = begin}, !fetched);
  }
  if (fetched) builder_.store(whole.weights, rest.weights, whole_bytes(rest.weights));
  for (std::size_t i = 0; i < whole.optimizer.size(); ++i)
    if (moves_whole(i) && whole.optimizer[i] != rest.optimizer[i])
      builder_.store(whole.optimizer[i], rest.optimizer[i], whole_bytes(rest.optimizer[i]));
}

// Emits Updates in forward order, so that the chunks that the next step needs first are ready first.
void Updates::finish() {
  if (!source_.updates || source_.gradients.empty()) return;
  if (waits_ && source_.scale != ValueId::none) check_scale();
  const bool on_host = state_.host_status != BufferId::none;
  if (source_.scale != ValueId::none && state_.scale != BufferId::none)
    builder_.move(where_.of(source_.scale), {state_.scale, 0}, sizeof(float));
  if (source_.scale != ValueId::none && on_host)
    builder_.move(where_.of(source_.scale), {state_.host_scale, 0}, sizeof(float));
  if (!waits_ || std::ranges::all_of(plan_.chunks, &plan::Chunk::deferred)) return;
  if (on_host) builder_.move({state_.status, 0}, {state_.host_status, 0}, kStatusBytes);
  for (std::size_t c = 0; c < plan_.chunks.size(); ++c)
    if (!schedule_.due[c].empty() && !plan_.chunks[c].deferred) {
      builder_.begin_stage();
      update_chunk(c);
    }
}

std::vector<Operand> Updates::verdict(std::size_t chunk) const {
  const bool scaled = source_.scale != ValueId::none;
  const auto with_scale = [&](BufferId status, Operand scale) {
    std::vector<Operand> operands = {{status, 0}};
    if (scaled) operands.push_back(scale);
    return operands;
  };
  if (optimizer_place(chunk) == Tier::host) return with_scale(state_.host_status, {state_.host_scale, 0});
  if (plan_.chunks[chunk].deferred) return with_scale(state_.held, {state_.scale, 0});
  return with_scale(state_.status, scaled ? where_.of(source_.scale) : Operand{});
}

// Updates a chunk. Its arrays stay where the optimizer ran (working_) until store_settled().
void Updates::update_chunk(std::size_t chunk) {
  const std::vector<std::size_t> &parameters = plan_.chunks[chunk].parameters;
  if (by_pieces(chunk)) {
    store_settled();
    return update_by_pieces(parameters[0], at_rest(parameters[0]), verdict(chunk));
  }
  if (working_[chunk].weights == BufferId::none) working_[chunk] = bring_chunk(chunk);
  store_settled();
  auto gradient = working_[chunk].gradients.begin();
  UpdateGroups small;
  for (std::size_t p : parameters) {
    if (!updates(p)) continue;
    UpdateGroups alone;
    add(p, in(working_[chunk], p, *gradient++),
        ops::goes_with_others(source_.graph.value(source_.gradients[p]).type) ? small : alone);
    for (const auto &[key, group] : alone) emit_update(group, verdict(chunk));
  }
  for (const auto &[key, group] : small) emit_update(group, verdict(chunk));
  gather_if_whole(chunk);
  if (!in_place(chunk)) unstored_ = {chunk};
  if (!plan_.chunks[chunk].deferred || plan_.slack == 0) store_settled();
}

// With several ranks, gives every rank the updated shards of the other ranks, if the chunk rests whole. Frozen
// parameters stay as they are.
void Updates::gather_if_whole(std::size_t chunk) {
  if (state_.shards.ranks == 1 || is_sharded(chunk)) return;
  std::vector<std::size_t> updated;
  for (std::size_t p : plan_.chunks[chunk].parameters)
    if (state_.parameters[p].trained) updated.push_back(p);
  gather_updated({source_.graph, state_, updated, chunk}, builder_);
}

// Copies updated chunks back to where they rest. A chunk with a deferred Update is copied back only after the copies
// that bring the arrays of the next chunk have been emitted. So copies in both directions overlap with the optimizer.
void Updates::store_settled() {
  for (std::size_t chunk : unstored_) store_chunk(chunk, working_[chunk]);
  unstored_.clear();
}

BufferId Updates::begin_settling(std::size_t chunk) {
  const bool on_compute =
      optimizer_place(chunk) == Tier::device && !in_place(chunk) && !by_pieces(chunk) && !is_sharded(chunk);
  if (unsettled_[chunk] && on_compute) {
    builder_.as_earlier([&] { working_[chunk] = bring_chunk(chunk); });
    return working_[chunk].weights;
  }
  settle(chunk);
  const bool near = std::ranges::find(unstored_, chunk) != unstored_.end();
  return near ? working_[chunk].weights : state_.chunks[chunk].weights;
}

void Updates::settle(std::size_t chunk) {
  if (!unsettled_[chunk]) return;
  builder_.as_earlier([&] { update_chunk(chunk); });
  unsettled_[chunk] = false;
}

void Updates::end_settling() {
  builder_.as_earlier([&] { store_settled(); });
}

}  // namespace protrain::program
