// The checkpoints of a training run: when they are written, which one is the best, and which are removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "handles.h"
#include "rank.h"

namespace tool {

// Flags of the command line about checkpoints.
struct CheckpointFlags {
  std::string directory;    // empty: no checkpoints are written
  std::uint64_t every = 0;  // steps between two checkpoints; 0: only one at the end
  std::uint64_t keep = 0;   // how many of the newest stay, beside the best; 0: all
};

// The evaluation with the smallest loss so far. The file best.json in the directory of checkpoints holds it.
struct Best {
  std::uint64_t step = 0;
  double loss = 0;
};

// Throws Failure if the directory is a checkpoint itself. Also throws Failure if it holds a checkpoint of a step after
// `first`, the number of steps that were taken before this run. Such a checkpoint belongs to another run and would
// count as the newest one, so --keep would remove checkpoints of this run, and a run that resumes would go on from the
// wrong checkpoint.
void require_checkpoint_place(const std::string &directory, std::uint64_t first);

// If the option `resume` names a file best.json, sets the option to the best checkpoint in the directory of that file.
void take_best(const Options &options);

class Checkpoints {
 public:
  // `first` is the number of steps that were taken before this run. If it is not 0, the best evaluation that the
  // directory holds counts as the best so far. Throws as require_checkpoint_place() does, and throws Failure if
  // best.json is damaged.
  Checkpoints(const CheckpointFlags &flags, std::uint64_t first, const Rank &rank);

  void after(protrain_session *session, std::uint64_t step);
  void at_end(protrain_session *session, std::uint64_t step);
  // Notes an evaluation after a step. If its loss is the smallest so far, saves a checkpoint and returns true. A best
  // checkpoint that somebody has removed does not count any more.
  bool evaluated(protrain_session *session, std::uint64_t step, double loss);

  const std::optional<Best> &best() const { return best_; }

 private:
  // Throws Failure if the directory holds a checkpoint of a later step than the last one that this run has saved. Such
  // a checkpoint belongs to another run, and this run might replace that run's checkpoints.
  void require_own_directory() const;
  void save(protrain_session *session, std::uint64_t step);  // throws as require_own_directory()
  void remove_old() const;
  bool lacks_best() const;
  void write_next_best(const Best &best) const;
  void put_best() const;

  const CheckpointFlags &flags_;
  const Rank rank_;
  std::uint64_t last_;  // the last saved step
  std::optional<Best> best_;
};

}  // namespace tool
