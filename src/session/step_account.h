// StepAccount: the books of a session's steps. A step may have several micro-batches: their losses are weighed
// together, a number that is not finite in one of them holds for the step, and an error makes the step begin anew.
// Which numbers the next micro-batch is given follows from these books alone, and so do its bits. Plain numbers: no
// device, no names.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/optimizer_numbers.h"
#include "session/loss_scale.h"

namespace protrain::session {

// What the next step's bits depend on beside the arrays, the inputs and the options.
struct Counters {
  std::uint64_t steps = 0;    // that there were: random numbers count them
  std::uint64_t skipped = 0;  // that changed nothing: the optimizer does not count them
  std::uint64_t seed = 0;
  LossScale loss_scale;  // in float16
};

struct StepResult {
  float loss = 0;
  double grad_norm = 0;  // global L2 norm over trained parameters, before any clipping
};

// A status word that a Program leaves is 0 where all was finite, this where the loss was not, and above it 2 + the
// parameter whose gradient was not.
inline constexpr std::uint32_t kLossMark = 1;

// The numbers that the Program of a micro-batch leaves.
struct BatchNumbers {
  std::uint32_t status = 0;
  float loss = 0;
  double weight = 1;          // targets that the loss is the mean of
  double norm = 0;            // of the step's last micro-batch
  std::uint64_t samples = 1;  // that it had
};

class StepAccount {
 public:
  struct Terms {
    std::uint64_t accumulation = 1;  // micro-batches of a step
    bool scales_loss = false;
    bool skips = false;  // a step that is not finite counts and changes nothing
  };
  StepAccount(const Terms &terms, const Counters &counters) : terms_(terms), counters_(counters) {}

  const Counters &counters() const { return counters_; }
  bool accumulates() const { return terms_.accumulation > 1; }

  // The micro-batch that comes next: whether it is the step's last, the scale of its loss, and what its status word
  // begins with, for no Update is to run where a micro-batch before it has spoilt the sums.
  bool is_last() const { return micro_batch_ + 1 == terms_.accumulation; }
  std::uint64_t loss_scale() const { return terms_.scales_loss ? counters_.loss_scale.value() : 1; }
  std::uint32_t status() const { return spoilt_; }
  backend::StepScalars scalars(const backend::Optimizer &optimizer, double learning_rate) const;

  // The micro-batch runs: the gradients of the step before are overwritten.
  void begin_batch() { gradients_hold_ = false; }
  // The micro-batch ran. The result is none where a number is not finite and that is not to be skipped: then the step
  // begins anew, and no parameter has changed but in the overlap order.
  std::optional<StepResult> add(const BatchNumbers &numbers, double seconds);
  // The step begins anew with its first micro-batch: its sums are of no use.
  void begin_anew();
  // A step that was refused counts: some parameters took it.
  void count_half_applied() { ++counters_.steps; }

  // Code::state within a step; `how` says what to do.
  void require_complete(const char *subject, const char *how) const;

  // The norm of the last complete step; Code::state before the first.
  double grad_norm() const;
  // The factor that the gradients of the last complete step lack. Code::state where there are none, or not any more.
  double gradient_factor(const std::string &parameter) const;
  // Seconds of the last step, or of its micro-batches so far.
  double seconds() const { return seconds_; }

 private:
  bool is_first() const { return micro_batch_ == 0; }
  bool takes(std::uint32_t status);
  StepResult complete(const BatchNumbers &numbers, std::uint64_t scale);

  const Terms terms_;
  Counters counters_;
  std::uint64_t micro_batch_ = 0;         // that comes next within the step
  std::uint64_t samples_ = 0;             // of the step's micro-batches so far
  std::uint32_t spoilt_ = 0;              // status of a micro-batch of this step that was not finite
  double loss_sum_ = 0, weight_sum_ = 0;  // over the step's micro-batches
  double seconds_ = 0;
  std::optional<double> norm_;   // of the last complete step
  bool gradients_hold_ = false;  // those of the last complete step are still there
  double last_weight_ = 1;       // what they are too large by
};

}  // namespace protrain::session
