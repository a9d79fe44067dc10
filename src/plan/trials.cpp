#include "plan/trials.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>

namespace protrain::plan {

Mix mix_of(const Choice &choice) {
  if (choice.n_device_update == 0) return Mix::host;
  return choice.n_device_update < 0 ? Mix::device : Mix::both;
}

double Trial::memory_error(Tier tier) const {
  return static_cast<double>(cost.bytes[tier]) - static_cast<double>(candidate.estimate.bytes[tier]);
}

double mode_distance(const Choice &a, const Choice &b) {
  if (a.order != b.order || a.slack != b.slack || (a.n_deferred < 0) != (b.n_deferred < 0))
    return std::numeric_limits<double>::infinity();
  const int kinds = (mix_of(a) != mix_of(b)) + (a.n_whole != b.n_whole) + (a.chunk_bytes != b.chunk_bytes) +
                    ((a.n_selective > 0) != (b.n_selective > 0));
  return 2 * std::abs(a.n_swap - b.n_swap) + std::abs(a.n_checkpoint - b.n_checkpoint) + 8.0 * kinds;
}

double distance(const Choice &a, const Choice &b) {
  return mode_distance(a, b) + std::abs(a.n_persist - b.n_persist) + std::abs(a.n_host - b.n_host) +
         std::abs(a.n_device_update - b.n_device_update) + std::abs(a.n_deferred - b.n_deferred) +
         0.5 * std::abs(a.n_buffer - b.n_buffer);
}

bool same_integers(const Choice &a, const Choice &b) {
  const auto integers = [](const Choice &of) {
    return std::tuple(of.n_persist, of.n_host, of.n_buffer, of.n_swap, of.n_checkpoint, of.n_selective > 0,
                      of.n_device_update, of.n_deferred, of.n_whole, of.chunk_bytes, of.slack, of.order);
  };
  return integers(a) == integers(b);
}

const Trial &Trials::add(const Candidate &candidate) {
  all_.push_back({candidate, lay_out(candidate.choice)});
  instructions_ += all_.back().cost.instructions;
  return all_.back();
}

const Trial *Trials::find(const Choice &choice) const {
  const auto found =
      std::ranges::find_if(all_, [&](const Trial &trial) { return same_integers(trial.candidate.choice, choice); });
  return found == all_.end() ? nullptr : &*found;
}

const Trial *Trials::nearest(const Choice &choice) const {
  return nearest_by([&](const Choice &other) { return distance(other, choice); });
}

const Trial *Trials::nearest_in_modes(const Choice &choice) const {
  return nearest_by([&](const Choice &other) { return mode_distance(other, choice); });
}

bool fits(const Bytes &bytes, const Bytes &capacity) {
  for (const Tier t : kTiers)
    if (bytes[t] > capacity[t]) return false;
  return true;
}

std::uint64_t shifted(std::uint64_t bytes, double by) {
  const double sum = static_cast<double>(bytes) + by;
  if (sum <= 0) return 0;
  return sum >= 0x1p63 ? ~0ull : static_cast<std::uint64_t>(sum);
}

}  // namespace protrain::plan
