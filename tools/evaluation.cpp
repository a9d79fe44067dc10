#include "evaluation.h"

#include <limits>
#include <memory>

#include "tell.h"

namespace tool {

namespace {

DataFlags data_of_evaluation(const EvaluationFlags &flags, const DataFlags &training) {
  if (flags.sequence > 0 && flags.tokens.empty()) throw UsageError("--eval-sequence needs --eval-tokens FILE");
  DataFlags data = flags.tokens.empty() ? training.without_tokens() : training;
  data.arrays = flags.arrays;
  data.tokens.clear();
  if (!flags.tokens.empty()) data.tokens.push_back(flags.tokens);
  if (flags.batch > 0) data.batch = flags.batch;
  if (flags.sequence > 0) data.sequence = flags.sequence;
  data.shuffle.reset();
  data.of_evaluations = true;
  return data;
}

}  // namespace

Evaluation::Evaluation(const EvaluationFlags &flags, const DataFlags &training, const ModelData &model,
                       const Options &options, const Batches &batches)
    : flags_(flags),
      batches_(data_of_evaluation(flags, training), model, options, batches),
      has_perplexity_(model.loss_is_cross_entropy) {
  batches_.take_rest(model, options);
  if (flags.patience > 0 && flags.every == 0) throw UsageError("--patience needs --eval-every N");
}

void Evaluation::settle(protrain_session *session, const Rank &rank) {
  batches_.settle(session);
  const std::string left_out = batches_.left_out();
  if (rank.leads() && !left_out.empty()) tell("protrain: warning: evaluations: {}\n", left_out);
}

// Deals the batches out to the ranks in rounds of one batch for each rank. A round cannot be dealt out if fewer batches
// than ranks are left, or if the round would hold the smaller last batch. In these cases every rank computes all
// batches that are left, and each of these batches counts once.
std::optional<double> Evaluation::run(protrain_session *session, const Rank &rank) {
  const std::uint64_t count = batches_.count();
  const auto dealt = [&](std::uint64_t first) {
    return first + rank.count <= count && batches_.weight(first + rank.count - 1) == 1;
  };
  const auto own = [&](std::uint64_t first) { return first + (dealt(first) ? rank.number : 0); };
  double sum = 0, weights = 0;
  for (std::uint64_t first = 0; first < count;) {
    const std::uint64_t next = first + (dealt(first) ? rank.count : 1);
    const double weight = static_cast<double>(next - first) * batches_.weight(first);
    float loss = 0;
    if (ends_by_signal(session, rank)) return std::nullopt;
    batches_.feed(session, own(first), own(next));
    const std::unique_ptr<protrain_error, Destroy> error(protrain_eval(session, &loss));
    if (error) {
      if (protrain_error_code(error.get()) == PROTRAIN_ERROR_CANCELLED) return std::nullopt;
      const LibraryFailure failure(error.get(), batches_.suspicion(error.get()));
      if (failure.code != PROTRAIN_ERROR_NONFINITE) throw failure;
      if (rank.leads())
        tell("protrain: warning: evaluation: batch {} of {}{}: {}\n", own(first) + 1, count,
             failure.counts_nothing() ? " is left out" : "", failure.what());
      if (!failure.counts_nothing()) return std::numeric_limits<double>::quiet_NaN();
      first = next;
      continue;
    }
    sum += weight * static_cast<double>(loss);
    weights += weight;
    first = next;
  }
  return weights > 0 ? sum / weights : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tool
