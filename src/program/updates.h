// Updates: decides where gradients are stored, and where, when and on which copies the optimizer runs.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "program/builder.h"
#include "program/sequence.h"
#include "program/storage.h"

namespace protrain::program {

// Tells where each value is now, and where each chunk's weights are on the device. Values with the same storage root
// are in the same place.
struct Whereabouts {
  std::vector<graph::ValueId> roots;
  std::vector<Operand> of_root;
  std::vector<BufferId> of_chunk;  // the fetched weights; none: they are not on the device

  Operand of(graph::ValueId id) const { return of_root[index(roots[index(id)])]; }
};

// Updates emits everything that happens to gradients once backward has made them. The plan decides the order (overlap
// or barrier), the optimizer's place (device or host), whether a chunk is updated whole or piece by piece, and whether
// it is updated in this step or in the next. The walk in lower.cpp only calls Updates at each item.
class Updates {
 public:
  Updates(const LoweringInput &source, const plan::Plan &plan, const State &state, Builder &builder,
          Whereabouts &where);

  // Finds, for each gradient, the item after which the gradient is complete.
  void schedule(const Sequence &sequence);
  // Returns, in ascending order, the items for which a chunk's weights must be on the device because the chunk's
  // optimizer runs there.
  std::vector<std::size_t> device_uses(std::size_t chunk) const;

  // Lets backward write each gradient straight to the place where it is stored, if this place is on the device. Called
  // before the walk.
  void bind();
  // Brings a sum of gradients to the device before `node` adds to it.
  void before(const graph::Node &node);
  void begin_item(std::size_t item);
  void after_item(std::size_t item);
  // Emits the Updates that waited for the norm of all gradients, except the deferred Updates. Keeps the factor of the
  // gradients for the deferred Updates.
  void finish();

  // To settle a chunk is to run the Updates that the previous step deferred. Usually begin_settling() emits these
  // Updates. But if the optimizer runs on copies of the whole chunk on the device, begin_settling() only brings the
  // copies. Then settle() emits the Updates later, when compute comes to the chunk. begin_settling() returns the buffer
  // in which the weights lie after the Updates.
  BufferId begin_settling(std::size_t chunk);
  void settle(std::size_t chunk);  // emits the Updates unless begin_settling() has
  void end_settling();

  // True if the step leaves the chunk's Updates to the next step.
  bool defers(std::size_t chunk) const {
    return plan_.chunks[chunk].deferred && source_.updates && !schedule_.due[chunk].empty();
  }

 private:
  // The places of a chunk's arrays while its optimizer runs.
  struct Working {
    BufferId weights = BufferId::none;
    std::vector<BufferId> optimizer;
    std::vector<Operand> gradients;  // of the trained parameters, in order; empty if gradients do not outlive backward
  };

  // A squared norm that is checked, and the parameter that the status names if the norm is not finite.
  struct Checked {
    std::size_t parameter;
    graph::ValueId norm;
  };

  // Lists the things that happen to gradients, with the items of the sequence at which they happen.
  struct Schedule {
    std::vector<std::vector<Checked>> checks;      // per item: squared norms to check after it
    std::vector<std::vector<std::size_t>> after;   // per item: parameters whose gradients are complete
    std::vector<std::vector<std::size_t>> before;  // per item: chunks whose arrays are brought ahead of it
    std::vector<std::vector<std::size_t>> due;     // per chunk: items that complete its gradients, ascending
    std::size_t scale = kNever;                    // overlap order: the item that computes the scale
  };

  Tier resting_place(std::size_t chunk) const { return builder_.buffer(state_.chunks[chunk].weights).tier; }
  Tier optimizer_place(std::size_t chunk) const;
  // True if the chunk's gradients outlive backward.
  bool rests(std::size_t chunk) const { return state_.chunks[chunk].gradient != BufferId::none; }
  bool is_sharded(std::size_t chunk) const { return state_.chunks[chunk].sharded; }
  std::size_t chunk_of(std::size_t parameter) const { return state_.parameters[parameter].chunk; }
  std::uint64_t bytes_of_parameter(std::size_t parameter) const;  // of this rank's shard, like the next one
  std::uint64_t bytes_of_gradient(std::size_t parameter) const;
  // True if this rank updates elements of the parameter.
  bool updates(std::size_t parameter) const {
    return state_.parameters[parameter].trained && elements_of(parameter) > 0;
  }
  bool in_place(std::size_t chunk) const { return optimizer_place(chunk) == resting_place(chunk); }

  // The places of a parameter's arrays, or of one piece of each array. They become the operands of an Update.
  struct Arrays {
    Operand gradient, weights;
    std::vector<Operand> optimizer;
  };
  // A range of a parameter's elements, the same in every array. It begins at `begin`, and has piece_elements()
  // elements, or fewer at the parameter's end.
  struct Piece {
    std::size_t parameter;
    std::uint64_t begin;
  };
  // The range of bytes that a piece takes in one of its parameter's arrays.
  struct ByteRange {
    std::uint64_t begin, bytes;
  };

  // True for a chunk that rests on host or disk and has one parameter, which is larger than a piece. The optimizer goes
  // through the parameter piece by piece. If an array rests in another tier than the optimizer's, each piece of the
  // array is brought to the optimizer's tier before its update, and stored again afterwards if the update changed the
  // piece.
  bool by_pieces(std::size_t chunk) const;
  std::uint64_t elements_of(std::size_t parameter) const { return state_.parameters[parameter].elements; }
  std::uint64_t piece_elements(std::size_t parameter) const;
  ByteRange range_of(const Piece &piece, std::uint64_t element_bytes,
                     std::uint64_t end) const;  // `end`: bytes of the array
  ByteRange range_of_weights(const Piece &piece) const;
  // `which` is the number of one of the optimizer's arrays.
  ByteRange range_of_array(const Piece &piece, std::size_t which) const;
  // True for an array of the optimizer that has one element for a block of many weights. Such an array is small, so it
  // moves whole, not in pieces.
  bool moves_whole(std::size_t which) const { return state_.optimizer_arrays[which].block > 1; }
  Arrays at_rest(std::size_t parameter) const;
  Arrays bring_piece(const Arrays &whole, const Piece &piece);
  void store_piece(const Arrays &near, const Piece &piece, bool weights);
  void update_by_pieces(std::size_t parameter, Arrays whole, const std::vector<Operand> &verdict);

  Working bring_chunk(std::size_t chunk);
  void store_chunk(std::size_t chunk, const Working &working);
  // The parameters that one update changes, and the places of their arrays in the tier where the optimizer runs.
  struct UpdateGroup {
    std::vector<Target> targets;
    std::vector<Arrays> arrays;
  };
  // Groups of parameters, one for each update, by the optimizer's place and the type of the gradients.
  using UpdateGroups = std::map<std::pair<Tier, DType>, UpdateGroup>;

  // Keeps, stores or applies the gradients of `parameters`, which are all complete after the same item. `verdict` is
  // the result of check() for the norms of these gradients.
  void complete(const std::vector<std::size_t> &parameters, BufferId verdict);
  BufferId check(const std::vector<Checked> &norms);
  void check_scale();
  void update_at_once(const std::vector<std::size_t> &parameters, BufferId verdict);
  Working working(std::size_t chunk) const;
  void add(std::size_t parameter, const Arrays &at, UpdateGroups &to) const;
  // Emits the update of a group. `verdict` holds the operand of the status, which says whether all checked numbers are
  // finite. If gradients are scaled, it also holds the operand of their factor.
  void emit_update(const UpdateGroup &group, const std::vector<Operand> &verdict);
  Arrays in(const Working &working, std::size_t parameter, Operand gradient) const;
  void keep(std::size_t parameter);
  std::vector<Operand> verdict(std::size_t chunk) const;  // for emit_update()
  void update_chunk(std::size_t chunk);
  void gather_if_whole(std::size_t chunk);
  void store_settled();

  const LoweringInput &source_;
  const plan::Plan &plan_;
  const State &state_;
  Builder &builder_;
  Whereabouts &where_;
  const bool waits_;       // Updates wait for the norm of all gradients
  Operand scale_on_host_;  // the host's copy of the scale, for update_at_once(); none: not made yet
  Schedule schedule_;
  std::vector<std::size_t> left_;      // per chunk: the number of gradients that are not applied yet
  std::vector<Working> working_;       // per chunk
  std::vector<bool> unsettled_;        // per chunk: its deferred Updates are still to run
  std::vector<std::size_t> unstored_;  // updated chunks that are not stored yet where they rest: one at most
};

}  // namespace protrain::program
