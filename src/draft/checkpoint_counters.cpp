#include "draft/checkpoint_counters.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace protrain::draft {

state::Checkpoint open_checkpoint(const std::string &path) {
  constexpr std::string_view kKnown[] = {state::kStep, kSkipped, kSeed,      kMicroBatch,
                                         kBase,        kScales,  kLossScale, kApplied};
  state::Checkpoint checkpoint = state::Checkpoint::open(path);
  const auto &counters = checkpoint.description().counters;
  for (const auto &[name, value] : counters)
    require(std::ranges::find(kKnown, name) != std::end(kKnown), Code::format, checkpoint.path(),
            "its manifest has a counter '{}', which no session has", printable(name));
  require(counters.contains(kLossScale) == counters.contains(kApplied), Code::format, checkpoint.path(),
          "its manifest has one of the counters {} and {} without the other", kLossScale, kApplied);
  return checkpoint;
}

std::optional<std::uint64_t> find_counter(const state::Checkpoint &checkpoint, const char *name) {
  const auto &counters = checkpoint.description().counters;
  const auto found = counters.find(name);
  return found == counters.end() ? std::nullopt : std::optional(found->second);
}

std::uint64_t counter(const state::Checkpoint &checkpoint, const char *name) {
  const std::optional<std::uint64_t> found = find_counter(checkpoint, name);
  require(found.has_value(), Code::format, checkpoint.path(), "its manifest has no counter {}", name);
  return *found;
}

}  // namespace protrain::draft
