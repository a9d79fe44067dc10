// The counters of a session's checkpoints: what beside the arrays training goes on from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "state/checkpoint.h"

namespace protrain::draft {

inline constexpr const char *kSkipped = "skipped", *kSeed = "seed", *kMicroBatch = "micro_batch";
inline constexpr const char *kLossScale = "loss_scale", *kApplied = "steps_at_loss_scale";

// A checkpoint that says nothing which a session would leave out: training would go on as another run.
state::Checkpoint open_checkpoint(const std::string &path);

std::optional<std::uint64_t> find_counter(const state::Checkpoint &checkpoint, const char *name);
// Code::format where there is none.
std::uint64_t counter(const state::Checkpoint &checkpoint, const char *name);

}  // namespace protrain::draft
