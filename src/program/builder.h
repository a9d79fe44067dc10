// Builder: collects the buffers and the instructions of a Program. The instructions are emitted in an order in which a
// single queue could run them. finish() gives every buffer its lifetime and place, and every instruction its waits.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace protrain::program {

class Builder {
 public:
  Builder(const State &state, const plan::Plan &plan);

  // Adds a buffer that lives from the first instruction that uses it to the last.
  BufferId add(const std::string &name, Tier tier, std::uint64_t bytes, std::uint64_t alignment = kAlignment,
               Owner owner = Owner::workspace);
  const Buffer &buffer(BufferId id) const { return program.buffers[index(id)]; }

  void emit(Instruction instruction);
  // Calls emits(), and marks the instructions that it emits as work of the step before (Instruction::earlier).
  template <typename Do>
  void as_earlier(Do &&emits) {
    earlier_ = true;
    emits();
    earlier_ = false;
  }
  // Emits a copy of `bytes`, between tiers or within one.
  void move(Operand from, Operand to, std::uint64_t bytes);
  // Emits the move of a swapped activation away from the device, or back to it.
  void swap(Operand from, Operand to, std::uint64_t bytes);
  // Emits copies of `bytes` bytes from `home` to the tier `to`. Between disk and device the bytes go through the host,
  // unless device and host share memory. Returns the copy's place, or `home` if the bytes lie in that tier already.
  Operand bring(Operand home, std::uint64_t bytes, Tier to);
  // Emits copies of `bytes` bytes from `from` back to `home`, tier by tier like bring().
  void store(Operand from, Operand home, std::uint64_t bytes);

  // Begins the next stage. Unless `slack` (Plan::slack) is 0, a buffer whose last user runs on another queue than
  // compute stays reserved after this last use: to the end of the stage, and for `slack` more stages. If `slack` is 0,
  // the buffer is free right after its last use.
  void begin_stage() { stage_begins_.push_back(program.instructions.size()); }
  void keep_to_end(BufferId id);
  Program finish();

  Program program;

 private:
  void copy(Kind kind, Operand from, Operand to, std::uint64_t bytes);
  // Returns the next tier on the way from `from` to `to`.
  Tier next(Tier from, Tier to) const;
  std::uint64_t alignment_for(Tier tier, Tier other) const;
  std::size_t end_of_slack(std::size_t instruction) const;
  void place(const std::vector<std::size_t> &first, const std::vector<std::size_t> &last);

  const std::ptrdiff_t slack_;  // stages
  bool earlier_ = false;
  std::vector<std::size_t> stage_begins_;
  std::vector<BufferId> kept_;
};

}  // namespace protrain::program
