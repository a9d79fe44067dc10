#include "draft/micro_batch.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "draft/batch.h"
#include "draft/checkpoint_counters.h"
#include "draft/pipeline.h"

namespace protrain::draft {

namespace {

std::vector<std::int64_t> divisors_downward(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= number / d; ++d)
    if (number % d == 0) {
      divisors.push_back(d);
      if (d * d != number) divisors.push_back(number / d);
    }
  std::ranges::sort(divisors, std::greater<>());
  return divisors;
}

bool within(const plan::Bytes &bytes, const Budget &budget) {
  for (const Tier t : kTiers)
    if (bytes[t] > budget.bytes[t]) return false;
  return true;
}

std::int64_t largest_that_fits(const Settings &settings, const onnx_import::ModelSource &source,
                               TargetMachine &profiled, const std::string &dim, std::int64_t samples) {
  std::int64_t any = 1;
  for (const std::int64_t batch : divisors_downward(samples)) {
    Settings bound = settings;
    bound.dims[dim] = batch;
    const Draft draft = run_pipeline(bound, source, profiled, Goal::any);
    if (within(draft.decision.found.resident->cost.bytes, draft.budget)) return batch;
    if (draft.decision.found.best) any = std::max(any, batch);
  }
  return any;
}

// Returns the samples per micro-batch of the checkpoint that is resumed. Returns 0 if nothing is resumed, or if options
// gave the number to the session that saved the checkpoint.
std::int64_t samples_of_checkpoint(const std::string &path) {
  if (path.empty()) return 0;
  const state::Checkpoint checkpoint = open_checkpoint(path);
  const std::optional<std::uint64_t> samples = find_counter(checkpoint, kMicroBatch);
  if (!samples) return 0;
  constexpr std::uint64_t kMost = 1ull << 40;
  require(*samples > 0 && *samples < kMost, Code::format, checkpoint.path(), "its micro-batch is {}", *samples);
  return static_cast<std::int64_t>(*samples);
}

}  // namespace

std::optional<MicroBatch> settle_micro_batch(const Settings &settings, const onnx_import::ModelSource &source,
                                             TargetMachine &machine) {
  if (!settings.tokens_per_step) return std::nullopt;
  const Batch batch = batch_of(inputs_of(*onnx_import::Model::open(source), settings), settings.dims);
  // Settles nothing if the batch is bound. Also settles nothing if tokens_per_sample is 0. In that case another dim is
  // not bound, or the inputs hold no tokens, and the pipeline reports the error.
  if (batch.samples > 0 || batch.tokens_per_sample == 0) return std::nullopt;
  const std::int64_t tokens = *settings.tokens_per_step;
  require(tokens % batch.tokens_per_sample == 0, Code::arg, "tokens_per_step",
          "{} tokens are not a multiple of the {} of one sample", tokens, batch.tokens_per_sample);
  require(tokens / batch.tokens_per_sample % settings.ranks.count == 0, Code::arg, "tokens_per_step",
          "{} tokens are {} samples, which {} ranks cannot divide among them", tokens, tokens / batch.tokens_per_sample,
          settings.ranks.count);
  const int ranks = settings.ranks.count;
  const std::int64_t samples = tokens / batch.tokens_per_sample / ranks;
  if (const std::int64_t kept = samples_of_checkpoint(settings.resume); kept > 0) {
    require(
        samples % kept == 0, Code::mismatch, "tokens_per_step",
        "the checkpoint's micro-batch is {} and a step now has {} samples{}: give tokens_per_step a multiple of {}, or "
        "bind {} to go on with another",
        kept, samples * ranks, ranks > 1 ? fmt::format(" on {} ranks", ranks) : "",
        kept * batch.tokens_per_sample * ranks, batch.dim);
    return MicroBatch{batch.dim, kept};
  }
  require(settings.plan.empty(), Code::arg, "plan",
          "a plan from a file says nothing about the batch, and none is chosen for it: bind {} with the option dim",
          batch.dim);
  // All ranks make the profile together, to share their memory.
  const profile::Profile profile = machine.profile({}, settings.optimizer);
  ProfiledMachine profiled(machine, profile);
  const std::string chosen = machine.of_rank_0(
      [&] { return fmt::format("{}", largest_that_fits(settings, source, profiled, batch.dim, samples)); });
  return MicroBatch{batch.dim, parse_integer(chosen).value()};
}

}  // namespace protrain::draft
