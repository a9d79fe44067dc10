#include "plan/trials.h"

#include <cmath>
#include <cstdlib>

namespace protrain::plan {

double Trial::memory_error(std::size_t tier) const {
  return static_cast<double>(laid_out.bytes[tier]) - static_cast<double>(candidate.estimate.bytes[tier]);
}

double mode_distance(const Choice &a, const Choice &b) {
  const int kinds = (a.update != b.update) + (a.order != b.order) + (a.chunk_bytes != b.chunk_bytes) +
                    ((a.n_selective > 0) != (b.n_selective > 0));
  return std::abs(a.slack - b.slack) + 2 * std::abs(a.n_swap - b.n_swap) + std::abs(a.n_checkpoint - b.n_checkpoint) +
         8.0 * kinds;
}

double distance(const Choice &a, const Choice &b) {
  return mode_distance(a, b) + std::abs(a.n_persist - b.n_persist) + std::abs(a.n_host - b.n_host) +
         0.5 * std::abs(a.n_buffer - b.n_buffer);
}

bool same_integers(const Choice &a, const Choice &b) { return distance(a, b) == 0; }

const Trial &Trials::add(const Candidate &candidate) {
  all_.push_back({candidate, lay_out_(expand(graph_, candidate.choice))});
  instructions_ += all_.back().laid_out.instructions;
  return all_.back();
}

const Trial *Trials::nearest(const Choice &choice, double (*away)(const Choice &, const Choice &)) const {
  const Trial *found = nullptr;
  double least = 0;
  for (const Trial &trial : all_) {
    const double from = away(trial.candidate.choice, choice);
    if (found == nullptr || from < least) found = &trial, least = from;
  }
  return found;
}

std::uint64_t shifted(std::uint64_t bytes, double by) {
  const double sum = static_cast<double>(bytes) + by;
  return sum <= 0 ? 0 : sum >= 0x1p63 ? ~0ull : static_cast<std::uint64_t>(sum);
}

}  // namespace protrain::plan
