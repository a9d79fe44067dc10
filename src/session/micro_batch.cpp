#include "session/micro_batch.h"

#include <algorithm>

#include "base/error.h"
#include "session/checkpoint.h"
#include "session/loaded_model.h"
#include "session/refusal.h"

namespace protrain::session {

namespace {

// The dimension that is left open: the first of the first input of integers.
struct Open {
  std::string dim;
  std::int64_t tokens_of_sample = 1;
};

std::optional<Open> open_dimension(const Options &options, const onnx_import::Source &source) {
  const auto file = onnx_import::Model::open(source);
  const onnx_import::DimBindings bound = dim_bindings(options);
  for (const onnx_import::Input &input : file->inputs()) {
    if (!is_integer(input.dtype) || input.dims.empty()) continue;
    const auto *name = std::get_if<std::string>(&input.dims[0]);
    if (name == nullptr || bound.contains(*name)) return std::nullopt;
    Open open{.dim = *name};
    for (std::size_t axis = 1; axis < input.dims.size(); ++axis) {
      const auto *symbol = std::get_if<std::string>(&input.dims[axis]);
      if (symbol != nullptr && !bound.contains(*symbol)) return std::nullopt;  // said where the graph is made
      open.tokens_of_sample *= symbol != nullptr ? bound.at(*symbol) : std::get<std::int64_t>(input.dims[axis]);
    }
    return open;
  }
  return std::nullopt;
}

std::vector<std::int64_t> divisors_downward(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d * d <= number; ++d)
    if (number % d == 0) {
      divisors.push_back(d);
      if (d * d != number) divisors.push_back(number / d);
    }
  std::ranges::sort(divisors, std::greater<>());
  return divisors;
}

bool within(const plan::Bytes &bytes, const Budget &budget) {
  for (std::size_t t = 0; t < kTierCount; ++t)
    if (bytes[t] > budget.bytes[t]) return false;
  return true;
}

std::int64_t largest_that_fits(const Options &options, const onnx_import::Source &source, Site &site, const Open &open,
                               std::int64_t samples) {
  const profile::Profile rates = site.profile({}, {});
  std::int64_t any = 1;
  for (const std::int64_t batch : divisors_downward(samples)) {
    Options bound = options;
    bound.set("dim", fmt::format("{}={}", open.dim, batch));
    const Blueprint drawn = sketch_again(bound, source, site, rates);
    if (within(drawn.chosen.found.resident->laid_out.bytes, drawn.budget)) return batch;
    if (drawn.chosen.found.best) any = std::max(any, batch);
  }
  return any;
}

}  // namespace

std::optional<MicroBatch> settle_micro_batch(const Options &options, const onnx_import::Source &source, Site &site) {
  if (!options.is_set("tokens_per_step")) return std::nullopt;
  const std::optional<Open> open = open_dimension(options, source);
  if (!open) return std::nullopt;
  const std::int64_t tokens = options.integer("tokens_per_step");
  require(tokens % open->tokens_of_sample == 0, Code::arg, "tokens_per_step",
          "{} tokens are not a multiple of the {} of one sample", tokens, open->tokens_of_sample);
  const std::int64_t samples = tokens / open->tokens_of_sample;
  if (const std::int64_t kept = micro_batch_of_checkpoint(options); kept > 0) {
    require(
        samples % kept == 0, Code::mismatch, "tokens_per_step",
        "the checkpoint's micro-batch is {} and a step now has {} samples: give tokens_per_step a multiple of {}, or "
        "bind {} to go on with another",
        kept, samples, kept * open->tokens_of_sample, open->dim);
    return MicroBatch{open->dim, kept};
  }
  require(!options.is_set("plan"), Code::arg, "plan",
          "a plan needs the batch that it was made for: bind {} with the option dim", open->dim);
  return MicroBatch{open->dim, largest_that_fits(options, source, site, *open, samples)};
}

}  // namespace protrain::session
