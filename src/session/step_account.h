// StepAccount: counts a session's steps and averages the losses of a step's micro-batches by weight. If a number in one
// micro-batch is not finite, the whole step counts as not finite. After an error the step begins anew.
//   The scalars of the next micro-batch depend only on this account, the optimizer's settings and the groups. An
// account holds plain numbers: no device, no names.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/optimizer_numbers.h"
#include "draft/schedule.h"
#include "program/status_word.h"
#include "session/loss_scale.h"

namespace protrain::session {

// The counters that the next step's bits depend on, besides the arrays, the inputs and the options.
struct Counters {
  std::uint64_t steps = 0;    // all steps; random numbers count them
  std::uint64_t skipped = 0;  // steps that the optimizer does not count, mostly because they changed nothing
  std::uint64_t seed = 0;
  LossScale loss_scale;  // for float16
};

struct StepResult {
  float loss = 0;
  double grad_norm = 0;  // global L2 norm over trained parameters, before clipping
  double learning_rate = 0;
};

// The results of a round, in which the Program of each rank computed a micro-batch.
struct RoundNumbers {
  struct Batch {
    float loss = 0;
    double weight = 1;  // the number of targets that `loss` is the mean of
  };
  program::StatusWord status;
  std::vector<Batch> batches = {Batch()};  // one of each rank
  double norm = 0;                         // only in the step's last round
  std::uint64_t samples = 1;               // in each micro-batch, as random numbers count them
};

class StepAccount {
 public:
  struct Terms {
    std::uint64_t accumulation = 1;  // micro-batches per step, of all ranks
    std::uint64_t ranks = 1;         // each computes a micro-batch at a time
    bool scales_loss = false;
    bool skips = false;  // a step that is not finite counts but changes nothing
    draft::Schedule schedule;
    double learning_rate = 0;  // the full rate, which the schedule may reduce
  };
  StepAccount(const Terms &terms, const Counters &counters) : terms_(terms), counters_(counters) {}

  const Counters &counters() const { return counters_; }
  std::uint64_t micro_batch() const { return micro_batch_; }  // the number of rank 0's next micro-batch in the step
  bool accumulates() const { return terms_.accumulation > 1; }

  // These functions are about the next micro-batch. With several ranks, they are about the next micro-batch of each
  // rank. is_last() is true for the last micro-batch of the step. status() returns the status word with which the
  // micro-batch starts. This word is not 0 if the step is to be skipped, because an earlier micro-batch was not finite.
  // Then no Update runs.
  bool is_last() const { return micro_batch_ + terms_.ranks == terms_.accumulation; }
  std::uint64_t loss_scale() const { return terms_.scales_loss ? counters_.loss_scale.value() : 1; }
  program::StatusWord status() const { return spoilt_; }
  double learning_rate() const { return terms_.schedule.rate(terms_.learning_rate, counters_.steps); }
  backend::StepScalars scalars(const backend::Optimizer &optimizer, const std::vector<backend::Group> &groups) const;

  // Sets the learning rate, before the schedule reduces it, of this step and all later steps.
  void set_learning_rate(double rate) { terms_.learning_rate = rate; }

  // Notes that the next micro-batch starts. This micro-batch overwrites the gradients of the last step.
  void begin_batch() { gradients_hold_ = false; }
  // Accounts for one finished micro-batch of each rank, in the order of ranks. If a number in one of these
  // micro-batches is not finite, the loss scale shrinks or the step is skipped, provided that the options allow one of
  // these. If the options allow neither, the step begins anew, and add() returns an empty optional. No parameter has
  // changed in that case, except in the overlap order.
  std::optional<StepResult> add(const RoundNumbers &numbers, double seconds);
  // Goes back to the first micro-batch of the step. An error makes this necessary if the sums of the step's
  // micro-batches so far are useless.
  void begin_anew();
  // Counts a step that failed after it had updated some parameters. If the optimizer has not counted any step yet, it
  // does not count this one either. So the optimizer's first step, in which the moving averages of all parameters
  // begin, is still to come.
  void count_half_applied() {
    if (counters_.skipped == counters_.steps) ++counters_.skipped;
    ++counters_.steps;
  }

  // Throws Code::state in the middle of a step. `how` ends the error's text and says what to do.
  void require_complete(const char *subject, const char *how) const;

  // The norm of the last complete step; Code::state before the first.
  double grad_norm() const;
  // Returns the learning rate of the last complete step, or of the next step if none is complete.
  double last_learning_rate() const { return last_ ? last_->learning_rate : learning_rate(); }
  // Returns the factor that removes loss scale and micro-batch weights from the gradients of the last complete step:
  // the reciprocal of last_weight(). Throws Code::state before the first step, within a step, and after a later call
  // has overwritten these gradients.
  double gradient_factor(const std::string &parameter) const;
  // Returns the factor by which the gradients of the last complete step are too large. It is the loss scale, times the
  // sum of the micro-batches' weights if the step has several.
  double last_weight() const { return last_weight_; }
  // Seconds of the last step, or of its micro-batches so far.
  double seconds() const { return seconds_; }

 private:
  bool is_first() const { return micro_batch_ == 0; }
  bool takes(program::StatusWord status);
  StepResult complete(const RoundNumbers &numbers, std::uint64_t scale);

  Terms terms_;
  Counters counters_;
  std::uint64_t micro_batch_ = 0;         // the number of rank 0's next micro-batch in the step
  std::uint64_t samples_ = 0;             // in the step's micro-batches so far, as random numbers count them
  program::StatusWord spoilt_;            // the status of a micro-batch of this step that was not finite
  double loss_sum_ = 0, weight_sum_ = 0;  // over the step's micro-batches
  double seconds_ = 0;
  std::optional<StepResult> last_;  // of the last complete step
  bool gradients_hold_ = false;     // the gradients of the last complete step still exist
  double last_weight_ = 1;          // the factor by which these gradients are too large
};

}  // namespace protrain::session
