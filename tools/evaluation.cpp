#include "evaluation.h"

namespace tool {

namespace {

DataFlags data_of_evaluation(const EvaluationFlags &flags, const DataFlags &training) {
  DataFlags data = training;
  data.arrays = flags.arrays;
  data.tokens.clear();
  if (!flags.tokens.empty()) data.tokens.push_back(flags.tokens);
  if (flags.batch > 0) data.batch = flags.batch;
  if (flags.sequence > 0) data.sequence = flags.sequence;
  data.shuffle.reset();
  if (flags.tokens.empty()) data.token_type = "";
  return data;
}

}  // namespace

Evaluation::Evaluation(const EvaluationFlags &flags, const DataFlags &training, const ModelData &model,
                       const Options &options, const Batches &batches)
    : flags_(flags),
      batches_(data_of_evaluation(flags, training), model, options, batches),
      has_perplexity_(model.cross_entropies == 1) {
  batches_.require_epochs();
  if (flags.patience > 0 && flags.every == 0) throw UsageError("--patience needs --eval-every N");
}

double Evaluation::run(protrain_session *session, const Rank &rank) {
  batches_.settle(session);
  const std::uint64_t count = batches_.count(), rounds = (count + rank.count - 1) / rank.count;
  double sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    float loss = 0;
    const std::uint64_t batch = round * rank.count + rank.number;
    batches_.feed(session, batch, batch + rank.count);
    check(protrain_eval(session, &loss));
    sum += static_cast<double>(loss);
  }
  return sum / static_cast<double>(rounds);
}

}  // namespace tool
