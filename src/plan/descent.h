// Descent: starts from a plan that was laid out and steps to neighbours that the simulator finds faster, until neither
// a step nor a promising pair of steps helps. The closed form assumes that every queue is busy all the time. But queues
// may wait for buffers that other queues still use, and then the closed form can miss half of a step's time. Only
// simulating the laid-out Program shows such waits.
#pragma once

#include "plan/space.h"
#include "plan/trials.h"

namespace protrain::plan {

class Descent {
 public:
  // Device and host must have memories of their own. A descent ends once `trials` has laid out `most` instructions.
  Descent(const graph::Graph &graph, const Space &space, const Terms &terms, Trials &trials,
          const LookAhead &look_ahead, std::size_t most);

  // Descends from `start`, which must be among the trials.
  void from(const Choice &start);

 private:
  // The kinds of steps, in the order in which a descent first tries them. `to_host` changes two integers at once.
  enum class Step : std::uint8_t {
    device_update,
    buffer,
    checkpoint,
    persist,
    swap,
    host,
    slack,
    selective,
    deferred,
    chunk_bytes,
    to_host,  // updates move from the device to the host and are deferred there, or the other way round
  };
  static constexpr std::size_t kKinds = 11;

  // Tries the choices in their order. Returns the first trial that fits and is faster than `than`; nullptr: there is
  // none, or no more instructions may be laid out.
  const Trial *faster(const Trial &than, const std::vector<Choice> &choices);
  // Lets look_ahead_ lay out the plans that faster() may need for these choices.
  void prepare(const Trial &than, const std::vector<Choice> &choices);
  // Tries the choice as it is. If it does not fit, or is not faster than `than`, tries it once more with another
  // n_persist: larger if device memory is left, smaller if too much is used. Returns true as soon as a try fits and is
  // faster than `than`, and sets `choice` to the choice of this try.
  // cost_of() returns a pointer to the cost of the choice that it gets, or nullptr if nothing more may be tried.
  template <typename CostOf>
  bool leads_to_faster(const Trial &than, Choice &choice, CostOf &&cost_of) const;
  std::vector<Choice> steps(Choice from, Step kind) const;
  std::vector<Choice> checkpoint_steps(const Choice &from) const;
  static std::vector<Choice> swap_steps(const Choice &from);
  std::vector<Choice> chunk_steps(const Choice &from) const;
  std::vector<Choice> pairs(const Trial &from) const;
  std::vector<std::vector<const Trial *>> tried_steps(const Trial &from) const;
  double worth_of_chunk(const Trial &from) const;
  Choice both(const Choice &from, const Choice &a, const Choice &b) const;
  Choice with_chunks_of(const Choice &from, std::uint64_t bytes) const;
  // Brings the choice into the form that the search uses, such as n_device_update -1 for all chunks. Returns false if
  // the choice is outside the space.
  bool settle(Choice &choice) const;
  int chunks_of(const Choice &choice) const;
  int chunks_that_fit(const Choice &choice, const Bytes &bytes) const;

  const Space &space_;
  const Terms &terms_;
  Trials &trials_;
  const LookAhead &look_ahead_;
  const std::size_t most_;
  std::vector<int> chunks_;    // number of chunks for each of the space's chunk_bytes
  std::uint64_t resting_ = 0;  // bytes of all weights and states
};

}  // namespace protrain::plan
