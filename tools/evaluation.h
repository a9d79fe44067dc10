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
  // Opens the data. If its shapes differ from those of the training data, binds them in `options`.
  Evaluation(const EvaluationFlags &flags, const DataFlags &training, const ModelData &model, const Options &options,
             const Batches &batches);

  // Takes over the batch that the library chose. Warns of samples that an evaluation leaves out. Throws Failure if they
  // are all left out. Call it before run().
  void settle(protrain_session *session, const Rank &rank);
  // True after the steps that `every` names. The last step of a run is evaluated too.
  bool due(std::uint64_t step) const { return flags_.every > 0 && step % flags_.every == 0; }
  // Returns the mean loss over one pass of the data, each batch weighted by its number of samples. Leaves out batches
  // in which no label counts, with a warning. If the loss of a batch is not finite, or all batches are left out,
  // returns NaN with a warning. Every rank must call it, and gets the same result.
  double run(protrain_session *session, const Rank &rank);
  // True if the run is to end: there have been `patience` evaluations after step `best`, and that of step `best` is
  // still the best one.
  bool exhausted(std::uint64_t step, std::uint64_t best) const {
    return flags_.patience > 0 && step / flags_.every >= best / flags_.every + flags_.patience;
  }
  // True if the loss is the mean cross entropy of one prediction, so that exp(loss) is its perplexity.
  bool has_perplexity() const { return has_perplexity_; }

 private:
  const EvaluationFlags &flags_;
  Batches batches_;
  const bool has_perplexity_;
};

}  // namespace tool
