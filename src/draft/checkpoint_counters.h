// The counters in a session's checkpoints: the numbers that resumed training needs besides the arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "state/checkpoint.h"

namespace protrain::draft {

inline constexpr const char *kSkipped = "skipped", *kSeed = "seed", *kMicroBatch = "micro_batch";
inline constexpr const char *kBase = "base";      // a hash of frozen weights (session/frozen_base.h)
inline constexpr const char *kScales = "scales";  // a hash of the adapters' scales
inline constexpr const char *kLossScale = "loss_scale", *kApplied = "steps_at_loss_scale";

// Opens a checkpoint. Throws Code::format if it has a counter that this library does not know, because training that
// ignores the counter would continue differently.
state::Checkpoint open_checkpoint(const std::string &path);

std::optional<std::uint64_t> find_counter(const state::Checkpoint &checkpoint, const char *name);
// Returns the counter's value. Throws Code::format if the checkpoint has no such counter.
std::uint64_t counter(const state::Checkpoint &checkpoint, const char *name);

}  // namespace protrain::draft
