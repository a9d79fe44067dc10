// Updates: decides where gradients rest, and where, when and on which copies the optimizer runs.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "program/builder.h"
#include "program/sequence.h"
#include "program/storage.h"

namespace protrain::program {

// The present place of each value, and of each chunk's weights, on the device; by storage root.
struct Whereabouts {
  std::vector<graph::ValueId> roots;
  std::vector<Operand> of_root;
  std::vector<BufferId> of_chunk;  // weights that were fetched; none: not there

  Operand of(graph::ValueId id) const { return of_root[index(roots[index(id)])]; }
};

// Updates emits everything that happens to gradients after backward made them: in either order, with the optimizer in
// either place, by chunk or piece by piece, in this step or deferred to the next. The walk in lower.cpp knows nothing
// of that and only calls in at each item.
class Updates {
 public:
  Updates(const LoweringInput &source, const plan::Plan &plan, const State &state, Builder &builder,
          Whereabouts &where);

  // Works out after which item each gradient is complete.
  void schedule(const Sequence &sequence);
  // The items that need a chunk's weights on the device because its optimizer runs there, ascending.
  std::vector<std::size_t> device_uses(std::size_t chunk) const;

  // Binds gradients that backward makes right where they rest; called before the walk.
  void bind();
  // Makes sure that a sum of gradients is there before `node` adds to it.
  void before(const graph::Node &node);
  void begin_item(std::size_t item);
  void after_item(std::size_t item);
  void finish();  // barrier order: the Updates that are not deferred

  // Begins the chunk's deferred Updates, which the last step left, and returns the place of its weights after that. An
  // optimizer on the host runs now. One on the device has its arrays brought now, and runs when compute comes to the
  // chunk.
  BufferId begin_settling(std::size_t chunk);
  void settle(std::size_t chunk);  // the rest of that
  void end_settling();

  // True if the chunk's Updates come from the step before.
  bool defers(std::size_t chunk) const {
    return plan_.chunks[chunk].deferred && source_.updates && !schedule_.due[chunk].empty();
  }

 private:
  // The places of a chunk's arrays while its optimizer runs.
  struct Working {
    BufferId weights = BufferId::none;
    std::vector<BufferId> optimizer;
    std::vector<Operand> gradients;  // of the trained parameters, in order; empty: they do not rest
  };

  // The items of the sequence at which gradients are handled.
  struct Schedule {
    std::vector<std::vector<std::size_t>> after;   // per item: parameters whose gradients are complete
    std::vector<std::vector<std::size_t>> before;  // per item: chunks whose arrays are brought ahead of it
    std::vector<std::vector<std::size_t>> due;     // per chunk: items that complete its gradients, ascending
  };

  Tier resting_place(std::size_t chunk) const { return builder_.buffer(state_.chunks[chunk].weights).tier; }
  Tier optimizer_place(std::size_t chunk) const;
  // True if the chunk's gradients outlive backward.
  bool rests(std::size_t chunk) const { return state_.chunks[chunk].gradient != BufferId::none; }
  std::size_t chunk_of(std::size_t parameter) const { return state_.parameters[parameter].chunk; }
  std::uint64_t bytes_of_parameter(std::size_t parameter) const;
  std::uint64_t bytes_of_gradient(std::size_t parameter) const;
  bool in_place(std::size_t chunk) const { return optimizer_place(chunk) == resting_place(chunk); }

  // A parameter's arrays, or a piece of each; the operands of an Update.
  struct Arrays {
    Operand gradient, weights;
    std::vector<Operand> optimizer;
  };
  // A parameter's elements from `begin`: piece_elements() of them or what is left. Every array has the same ones.
  struct Piece {
    std::size_t parameter;
    std::uint64_t begin;
  };
  // The bytes of a piece in one of the arrays.
  struct ByteRange {
    std::uint64_t begin, bytes;
  };

  // True for a chunk of one parameter that is larger than a piece. The optimizer goes through it piece by piece; arrays
  // that rest elsewhere are brought and stored for each piece.
  bool by_pieces(std::size_t chunk) const;
  std::uint64_t elements_of(std::size_t parameter) const;
  std::uint64_t piece_elements(std::size_t parameter) const;
  ByteRange range_of(const Piece &piece, std::uint64_t element_bytes,
                     std::uint64_t end) const;  // `end`: of the array, bytes
  ByteRange range_of_weights(const Piece &piece) const;
  ByteRange range_of_array(const Piece &piece, std::size_t which) const;  // of the optimizer's
  Arrays at_rest(std::size_t parameter) const;
  Arrays bring_piece(const Arrays &whole, const Piece &piece);
  void store_piece(const Arrays &near, const Piece &piece, bool weights);
  void update_by_pieces(std::size_t parameter, const Arrays &whole, const std::vector<Operand> &verdict);

  Working bring_chunk(std::size_t chunk);
  void store_chunk(std::size_t chunk, const Working &working);
  // Parameters that one update changes, with their arrays where the optimizer runs.
  struct UpdateGroup {
    std::vector<Target> targets;
    std::vector<Arrays> arrays;
  };
  // One group for each update: the optimizer in one place, gradients of one type.
  using UpdateGroups = std::map<std::pair<Tier, DType>, UpdateGroup>;

  // The parameters' gradients are complete after the same item.
  void complete(const std::vector<std::size_t> &parameters);
  BufferId check(const std::vector<std::size_t> &parameters);
  void update_at_once(const std::vector<std::size_t> &parameters, BufferId verdict);
  Working working(std::size_t chunk) const;
  void add(std::size_t parameter, const Arrays &at, UpdateGroups &to) const;
  // `verdict`: the status, and the scale if there is one.
  void emit_update(const UpdateGroup &group, const std::vector<Operand> &verdict);
  Arrays in(const Working &working, std::size_t parameter, Operand gradient) const;
  void keep(std::size_t parameter);
  std::vector<Operand> verdict(std::size_t chunk) const;  // on all gradients
  void update_chunk(std::size_t chunk);
  void store_settled();

  const LoweringInput &source_;
  const plan::Plan &plan_;
  const State &state_;
  Builder &builder_;
  Whereabouts &where_;
  const bool waits_;  // Updates wait for the norm of all gradients
  Schedule schedule_;
  std::vector<std::size_t> left_;      // per chunk: gradients to come
  std::vector<Working> working_;       // per chunk
  std::vector<bool> unsettled_;        // per chunk: the last step left Updates
  std::vector<std::size_t> unstored_;  // settled chunks that are not home yet: one at most
};

}  // namespace protrain::program
