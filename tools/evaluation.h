// Evaluation of a model while it is trained: the mean loss over data of its own, now and then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batches.h"
#include "rank.h"

namespace tool {

// Flags of the command line about evaluation.
struct EvaluationFlags {
  std::vector<std::string> arrays;  // as in DataFlags
  std::string tokens;
  std::int64_t batch = 0, sequence = 0;  // 0: as in training
  std::uint64_t every = 0;               // steps; 0: only after the last one
  std::uint64_t patience = 0;            // evaluations without improvement that end the run; 0: none do

  bool asked() const { return !arrays.empty() || !tokens.empty(); }
};

class Evaluation {
 public:
  // Opens the data. If their shapes differ from those of the training data, binds the new sizes in `options`.
  Evaluation(const EvaluationFlags &flags, const DataFlags &training, const ModelData &model, const Options &options,
             const Batches &batches);

  // Takes over the size of a batch from the session, if the library chose this size. Warns of samples that an
  // evaluation leaves out, and throws Failure if it leaves out all of them. Call it before run().
  void settle(protrain_session *session, const Rank &rank);
  // True if `step` is a multiple of `every`. The caller also evaluates after the last step of a run.
  bool due(std::uint64_t step) const { return flags_.every > 0 && step % flags_.every == 0; }
  // Returns the mean loss over one pass of the data, each batch weighted by its number of samples. Leaves out batches
  // in which no label counts, with a warning. If the loss of a batch is not finite, or all batches are left out,
  // returns NaN with a warning. Returns an empty optional if a signal, to this rank or another one, ends the run. Every
  // rank must call it, and gets the same result.
  std::optional<double> run(protrain_session *session, const Rank &rank);
  // Returns whether the run ends at `step`. It ends once `patience` evaluations have followed the best evaluation so
  // far, which was made at step `best`. False if `patience` is 0.
  bool exhausted(std::uint64_t step, std::uint64_t best) const {
    return flags_.patience > 0 && step / flags_.every >= best / flags_.every + flags_.patience;
  }
  // True if exp(loss) is the perplexity.
  bool has_perplexity() const { return has_perplexity_; }

 private:
  const EvaluationFlags &flags_;
  Batches batches_;
  const bool has_perplexity_;
};

}  // namespace tool
