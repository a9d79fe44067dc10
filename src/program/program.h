// Program: the exact list of what one step does, with the size and the place of every buffer. The executor runs a
// Program, the simulator predicts its time, and verify() proves that it is safe to run.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/queue.h"
#include "base/tier.h"
#include "graph/optimizer_array.h"
#include "graph/shards.h"
#include "plan/plan.h"
#include "program/status_word.h"

namespace protrain::program {

enum class BufferId : std::int32_t { none = -1 };
inline std::size_t index(BufferId id) { return static_cast<std::size_t>(id); }

inline constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();  // a position that is never reached

// The purpose of a buffer's bytes, in the order in which charts stack them. A copy has the owner of its original.
enum class Owner : std::uint8_t {
  weights,
  optimizer,             // moments and momentum
  gradients,             // of parameters, partial sums included
  inputs,                // and constants
  activations,           // results of forward
  recomputed,            // results of forward nodes that run again for backward
  activation_gradients,  // other results of backward
  workspace,             // scratch of kernels, flags
};
template <typename T>
using PerOwner = EnumArray<Owner, 8, T>;
inline constexpr PerOwner<const char *> kOwnerNames = {
    "weights", "optimizer", "gradients", "inputs", "activations", "recomputed", "activation_gradients", "workspace"};

// A range of bytes in one tier's arena. It holds one value, or several that alias (Reshape) or move together (the
// parameters of a chunk).
struct Buffer {
  std::string name;
  Tier tier = Tier::device;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // from the arena's start; a multiple of `alignment`
  std::uint64_t alignment = kAlignment;
  bool persistent = false;  // keeps its bytes from step to step: weights, optimizer state, inputs, constants
  Owner owner = Owner::workspace;
  bool operator==(const Buffer &) const = default;
};

// The place of one input or output of an instruction.
struct Operand {
  BufferId buffer = BufferId::none;  // none: absent
  std::uint64_t offset = 0;          // from the buffer's start, bytes
  bool operator==(const Operand &) const = default;
};

enum class Kind : std::uint8_t {
  run,    // a node
  check,  // status = the word of the first scalar that is not finite; outputs {status[, a copy of it]}
  // The optimizer changes one or more parameters, or one piece of a parameter: inputs {gradients..., status[, scale]},
  // outputs {weights, state...} for each parameter. For state that forward changes, the new values of this state take
  // the place of gradients.
  update,
  fetch,     // weights, optimizer state or a sum of gradients: host -> device
  offload,   // a gradient, or updated state: device -> host
  swap_out,  // an activation leaves the device
  swap_in,   // an activation comes back
  read,      // disk -> memory
  write,     // memory -> disk
  // Exchanges between ranks. Each sends parts of its inputs and receives parts of its outputs.
  all_to_all,  // gradients of this rank's micro-batch -> this rank's shards of all ranks' gradients
  all_gather,  // this rank's shards of weights, or part of a vector -> the shards or parts of all ranks
};
template <typename T>
using PerKind = EnumArray<Kind, 11, T>;
inline constexpr auto kKinds = all_values<Kind, 11>();
inline constexpr PerKind<const char *> kKindNames = {
    "run", "check", "update", "fetch", "offload", "swap_out", "swap_in", "read", "write", "all_to_all", "all_gather"};

// True for moves, which copy one input to one output, unchanged.
constexpr bool moves(Kind kind) {
  switch (kind) {
    case Kind::run:
    case Kind::check:
    case Kind::update:
    case Kind::all_to_all:
    case Kind::all_gather:
      return false;
    case Kind::fetch:
    case Kind::offload:
    case Kind::swap_out:
    case Kind::swap_in:
    case Kind::read:
    case Kind::write:
      return true;
  }
  return false;
}

constexpr bool is_between_ranks(Kind kind) { return kind == Kind::all_to_all || kind == Kind::all_gather; }

// Bytes that an instruction sends to another rank, or receives from it. A message from a rank to itself is a copy.
struct Message {
  int rank = 0;
  Operand at;  // in an input if the bytes are sent, in an output if they are received
  std::uint64_t bytes = 0;
  bool operator==(const Message &) const = default;
};

// A parameter, or a piece of one, that an update changes.
struct Target {
  std::size_t parameter = 0;
  std::uint64_t bytes = 0;  // of its weights
  std::size_t group = 0;    // number of the group that sets its learning rate and decay; 0 for state
  bool operator==(const Target &) const = default;
};

struct Instruction {
  Kind kind = Kind::run;
  Queue queue = Queue::compute;
  graph::NodeId node = graph::NodeId::none;  // run; all_to_all and all_gather that are nodes
  bool again = false;                        // run: a forward node runs a second time
  bool earlier = false;                      // work of the step before, which is done even if this step fails
  std::vector<Target> targets = {};          // update
  DType element = DType::f32;                // update: type of its gradients; check: of the scalars
  std::vector<StatusWord> words = {};        // check: for each scalar, the status if it is not finite
  // The number of bytes that the instruction handles: for a move, the bytes of the copy; for an update, the bytes of
  // all targets' weights. An exchange between ranks counts the bytes sent to other ranks, or the bytes received from
  // them if that is more.
  std::uint64_t bytes = 0;
  // Exchanges between ranks. The n-th message that a rank sends to another is the n-th that the other receives from it.
  std::vector<Message> sends = {}, receives = {};
  std::vector<std::size_t> waits = {};  // instructions of other queues that must be over first
  std::vector<Operand> inputs = {}, outputs = {};
  BufferId scratch = BufferId::none;
  std::vector<BufferId> releases = {};  // buffers that nothing needs once this instruction is over
  bool operator==(const Instruction &) const = default;
};

using graph::OptimizerArray;

// Returns the optimizer's arrays for weights of this type: an array of master weights if the type needs one, then
// `state`. For float16 the first array holds the whole master weights. For bfloat16 it holds only their lower plane,
// because the weights are the upper plane (arith/planes.h).
std::vector<OptimizerArray> optimizer_arrays(DType weights, const std::vector<OptimizerArray> &state);

// The buffers that outlive a step. They begin each arena, and every Program of a session shares them.
struct State {
  struct Chunk {
    BufferId weights = BufferId::none;
    std::vector<BufferId> optimizer;     // one for each of optimizer_arrays; empty where nothing is trained
    BufferId gradient = BufferId::none;  // for barrier order, accumulation and deferred updates; else none
    // True if each rank keeps only its shards of the weights, so that nodes read the weights from another buffer, of
    // `whole_bytes`, which all ranks fill. False with one rank.
    bool sharded = false;
    std::uint64_t whole_bytes = 0;             // size of the whole weights
    std::vector<std::size_t> parameters = {};  // positions in graph.parameters
  };
  // The places of a parameter. A rank keeps optimizer arrays and a gradient only for its own shard. With one rank the
  // shard is the whole parameter.
  struct Parameter {
    std::size_t chunk = 0;
    std::uint64_t whole_at = 0;                     // offset of the parameter in the chunk's whole weights, bytes
    std::uint64_t weights_at = 0, gradient_at = 0;  // offsets of the shard in the chunk's buffers, bytes
    std::vector<std::uint64_t> optimizer_at = {};   // offset of the shard in each optimizer array, bytes
    std::uint64_t elements = 0;                     // number of elements of the shard
    bool trained = false;
    std::size_t group = 0;  // see Target
  };

  graph::Shards shards;
  Tier exchanges = Tier::device;  // the memory that a Channel can send from and receive into
  std::vector<Buffer> buffers;
  std::vector<OptimizerArray> optimizer_arrays;
  std::vector<Chunk> chunks;  // the plan's chunks, then one for the state that forward changes, if any
  std::vector<Parameter> parameters;
  std::vector<std::map<graph::ValueId, BufferId>> of_value;  // per binding of shapes: inputs, constants, accumulators
  std::vector<BufferId> kept;        // per parameter: a copy of its gradient that can be read after the step, or none
  BufferId status = BufferId::none;  // a StatusWord
  // The host's copies of status and scale, for Updates on the host that come after backward.
  BufferId host_status = BufferId::none, host_scale = BufferId::none;
  // Status and scale for the Updates on the device that a step defers to the next step. `held` is a StatusWord. It is 0
  // if the previous step deferred such Updates. Otherwise it is not 0, so that this step's instructions for such
  // Updates do nothing. Deferred Updates on the host use host_status and host_scale instead.
  BufferId held = BufferId::none, scale = BufferId::none;
  PerTier<std::uint64_t> bytes{};
  // The number of bytes at the start of the device's arena that hold frozen weights: those that rest on the device
  // whole. No step writes these bytes. The weights in them have the same layout on every rank, and under every plan
  // that keeps all frozen weights on the device.
  std::uint64_t frozen_bytes = 0;

  // True if nodes can read the chunk's weights where they rest.
  bool rests_whole_on_device(std::size_t chunk) const {
    return !chunks[chunk].sharded && buffers[index(chunks[chunk].weights)].tier == Tier::device;
  }
  Operand weights(std::size_t parameter) const;  // of this rank's shard, like the next two
  Operand optimizer(std::size_t parameter, std::size_t which) const;
  Operand gradient(std::size_t parameter) const;
};

struct Program {
  std::vector<Buffer> buffers;  // the state's first, with the same ids
  std::vector<Instruction> instructions;
  BufferId loss = BufferId::none;
  BufferId norm = BufferId::none;    // none: evaluation, and micro-batches before the last
  BufferId weight = BufferId::none;  // weight of the loss in the mean over micro-batches
  BufferId status = BufferId::none;
  std::vector<BufferId> squared_norms;  // per parameter: of its whole gradient, or none; empty where `norm` is none
  std::vector<Operand> outputs;         // those of LoweringInput::outputs: they can be read once the Program has run
  PerTier<std::uint64_t> state_bytes{};
  PerTier<std::uint64_t> arena_bytes{};  // the peaks: the highest byte that a step touches, plus one
  std::size_t commit = 0;                // before this instruction a step can be stopped as if it had never begun
  bool shares_memory = false;            // device and host are one memory
  Tier exchanges = Tier::device;         // where the operands of instructions between ranks lie
  bool operator==(const Program &) const = default;

  // The small buffers whose contents are read once the Program has run.
  std::vector<BufferId> results() const {
    std::vector<BufferId> all = squared_norms;
    all.insert(all.end(), {loss, norm, weight});
    std::erase(all, BufferId::none);
    return all;
  }
};

// The input of lower(): a graph and, for training, the values that updates need.
struct LoweringInput {
  const graph::Graph &graph;
  graph::ValueId loss = graph::ValueId::none;      // none: only `outputs` are computed
  graph::ValueId norm = graph::ValueId::none;      // none: evaluation
  std::vector<graph::ValueId> gradients = {};      // per parameter, none: not trained; empty: evaluation
  std::vector<graph::ValueId> squared_norms = {};  // per parameter, none: not trained; empty: evaluation
  // Per parameter: the squared norm of this rank's shard of the gradient; none: not trained. This norm is checked
  // before the shard's update. If the vector is empty, squared_norms are checked instead.
  std::vector<graph::ValueId> shard_norms = {};
  std::vector<graph::ValueId> accumulators = {};  // per parameter; empty: gradients are not summed over micro-batches
  std::vector<graph::ValueId> changed = {};       // per parameter, none: no state; empty: evaluation
  graph::ValueId weight = graph::ValueId::none;   // accumulation: weight of this micro-batch
  graph::ValueId scale = graph::ValueId::none;    // factor by which Updates multiply gradients; none: 1
  std::vector<graph::ValueId> outputs = {};       // further results that are read after the Program
  bool updates = true;                            // false: a micro-batch before the last
  bool settles = false;                           // the Program has only the Updates that the last step deferred
  std::size_t binding = 0;                        // index of one of the session's bindings of shapes
};

// The bytes of scratch that the backend's kernels need.
struct Workspace {
  std::vector<std::uint64_t> nodes;  // per node of the graph
};

// The arrays to lay out besides the weights of the plan's chunks.
struct StateRequest {
  graph::Shards shards = {};              // without bounds: one rank
  Tier exchanges = Tier::device;          // device, or host if a Channel does not reach the device's memory
  std::vector<OptimizerArray> optimizer;  // for every chunk with trained parameters
  bool accumulates = false;               // gradients outlive a micro-batch
  std::vector<bool> kept;                 // per parameter: its gradient can be read after a step
  std::vector<std::size_t> groups = {};   // per parameter: see Target; empty: all are of group 0
};

// Returns the input of a Program that only runs the Updates which the last step deferred. Such a Program runs when
// parameters are read before the next step.
inline LoweringInput settlement(LoweringInput training) {
  training.settles = true;
  return training;
}

// Lays out the buffers that outlive a step. `sources` holds the LoweringInput of training for each binding, and then
// the LoweringInputs of evaluations.
State lay_out_state(const std::vector<LoweringInput> &sources, const plan::Plan &plan, const StateRequest &request);

// Returns the Program of a step under the plan, with all offsets and waits. Any plan can be lowered; the caller
// compares the Program's bytes with the budget.
Program lower(const LoweringInput &source, const plan::Plan &plan, const State &state, const Workspace &workspace);

// Adds to each instruction the waits that its operands and bytes need, except those that other waits imply.
void add_waits(Program &program);

// Throws Code::internal with the first instruction that reads a buffer that was not written, touches bytes that another
// instruction may be using, or leaves the arena.
void verify(const Program &program);

// Returns one line for each instruction: queue, kind, subject, buffers with offset and bytes.
std::string print(const Program &program, const graph::Graph &graph);
// Returns the instruction's description for errors, such as "12 run MatMul (h.0/mlp)".
std::string describe(const Program &program, const graph::Graph &graph, std::size_t instruction);
// Returns the operator that an instruction runs, or the name of its kind if it runs no node.
std::string operation_of(const Instruction &instruction, const graph::Graph &graph);

}  // namespace protrain::program
