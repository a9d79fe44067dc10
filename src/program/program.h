// Program: the exact list of what one step does, with its bytes and addresses. The executor runs it, the simulator
// predicts from it, verify() proves it; nobody else decides anything about a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/queue.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace protrain::program {

enum class BufferId : std::int32_t { none = -1 };
inline std::size_t index(BufferId id) { return static_cast<std::size_t>(id); }

// An interval of the device arena that holds one thing. Several values are one buffer where they alias (Reshape).
struct Buffer {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // from the arena's start, a multiple of kAlignment
  bool persistent = false;   // holds from step to step: weights, optimizer state, inputs, constants
  bool operator==(const Buffer &) const = default;
};

enum class Kind : std::uint8_t {
  run,     // a node
  check,   // status = mark where a scalar is not finite
  update,  // the optimizer on one parameter
};

struct Instruction {
  Kind kind = Kind::run;
  Queue queue = Queue::compute;
  graph::NodeId node = graph::NodeId::none;         // run
  std::size_t parameter = 0;                        // update
  std::uint32_t mark = 0;                           // check: 1 the loss, 2 + p the gradient of parameter p
  std::vector<std::size_t> waits = {};              // instructions of other queues that must be over
  std::vector<BufferId> inputs = {}, outputs = {};  // BufferId::none: absent
  BufferId scratch = BufferId::none;
  bool operator==(const Instruction &) const = default;
};

// The arena's lower part, common to every Program of a session.
struct State {
  std::vector<Buffer> buffers;
  std::map<graph::ValueId, BufferId> of_value;      // parameters, inputs, constants, kept gradients
  std::vector<std::vector<BufferId>> of_optimizer;  // per parameter: first moment, second moment
  BufferId status = BufferId::none;                 // uint32; 0: everything was finite so far
  std::uint64_t bytes = 0;
};

struct Program {
  std::vector<Buffer> buffers;  // the state's first, with the same ids
  std::vector<Instruction> instructions;
  BufferId loss = BufferId::none;
  BufferId norm = BufferId::none;  // none: evaluation
  BufferId status = BufferId::none;
  std::uint64_t state_bytes = 0;
  std::uint64_t arena_bytes = 0;  // the peak: the highest byte that a step touches, plus one
  bool operator==(const Program &) const = default;
};

// What is lowered: a graph, and where it trains what its updates need.
struct Source {
  const graph::Graph &graph;
  graph::ValueId loss = graph::ValueId::none;
  graph::ValueId norm = graph::ValueId::none;  // none: evaluation
  std::vector<graph::ValueId> gradients;       // per parameter, none: not trained; empty: evaluation
  std::vector<graph::ValueId> squared_norms;   // likewise
};

// Bytes of scratch, as the backend's kernels asked for.
struct Workspace {
  std::vector<std::uint64_t> nodes;  // per node of the graph
};

// Lays out what outlives a step: parameters with `state_count` optimizer arrays where trained, inputs, the constants
// that nodes of either graph read, and the gradients of the parameters marked in `kept`.
State lay_out_state(const Source &training, const Source &evaluation, int state_count, const std::vector<bool> &kept);

// Code::unsupported for a plan with anything but resident chunks and kept blocks.
Program lower(const Source &source, const plan::Plan &plan, const State &state, const Workspace &workspace);

// Code::internal names the first instruction that reads what is not there, touches bytes that another instruction may
// be using, or leaves the arena.
void verify(const Program &program);

// One line an instruction: queue, kind, what, buffers with offset and bytes.
std::string print(const Program &program, const graph::Graph &graph);
// "12 run MatMul (h.0/mlp)" for errors.
std::string describe(const Program &program, const graph::Graph &graph, std::size_t instruction);

}  // namespace protrain::program
