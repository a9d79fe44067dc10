// The closed form: equations that estimate the seconds of a step from a Choice (plan.h). footprint.h has those for its
// bytes. They are the equations of ProTrain (arXiv 2406.08334, sections 3.2 and 3.3), extended by what the paper does
// not have. Comments cite the paper's numbers of equations. The estimates only rank choices. The laid-out Program
// decides whether a choice fits, and the simulator tells how long its step takes.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/footprint.h"
#include "plan/workload.h"

namespace protrain::plan {

struct Estimate {
  double seconds = 0;
  int n_deferred = 0;  // overlap order: updates on the host that do not finish during backward
  Bytes bytes{};
};

// CostModel estimates the seconds of choices. One CostModel is made for the choices of one Footprint. The terms that
// depend on n_persist, n_host and n_buffer are then differences of prefix sums, so an estimate is cheap and the search
// can afford one for every point.
//   Updates on the device and on the host are spread evenly over the model. So each non-persistent chunk is priced as
// the mean of an update on the device and an update on the host, weighted by Footprint::on_device().
class CostModel {
 public:
  // Takes much longer than to make the Footprint. `workload` and `footprint` are for the same chunking, order of
  // updates and n_whole. They must outlive the CostModel.
  CostModel(const Workload &workload, const Footprint &footprint);

  Estimate estimate(std::size_t persist, std::size_t on_host, std::size_t buffers) const;

 private:
  // Seconds summed over chunks that all rest in the same tier.
  struct Sums {
    double forward = 0, backward = 0, cached = 0;  // eq. 3 and 5; cached: backward of chunks that need no fetch
    double fetch = 0;                              // added if there is one buffer, which is never filled while in use
    double after = 0;                              // barrier order: updates that run after backward
    double ways = 0, host = 0;                     // all moves and exchanges; the host's optimizer
    double read = 0, write = 0;                    // the disk's moves: all, during forward, and during backward
    double read_forward = 0, write_forward = 0, read_backward = 0, write_backward = 0;
  };

  // True if there is a disk. In that case resting_order() spreads the chunks on the disk evenly over the model, so the
  // disk works all through forward and backward, and not only next to its own chunks. The sums `forward`, `backward`
  // and `cached` therefore leave out the disk's time. estimate() takes such a sum or the disk's time in the same phase,
  // whichever is longer.
  //   If the plan puts no chunk on the disk, its chunks rest in another order than the one in which the sums are made.
  // This matters only if chunks differ much.
  bool spreads_disk() const { return chunking_.terms.capacity[Tier::disk] > 0; }
  const Chunking::Weight &weight(std::size_t chunk) const { return chunking_.chunks[chunk]; }
  void weigh();
  void sum_up(Tier tier);
  QueueSeconds update(std::size_t chunk, Tier tier) const;
  QueueSeconds settle(std::size_t chunk, Tier tier) const;  // eq. 6

  const Workload &workload_;
  const Footprint &footprint_;
  const Chunking &chunking_;
  const Choice &base_;
  const double on_device_;
  const bool shares_cores_;
  const bool spreads_;            // host updates that do not finish during backward run during the next forward
  std::vector<double> backward_;  // seconds of each chunk, recomputation included
  std::vector<QueueSeconds> swap_out_, swap_in_;  // moves of each chunk's swapped activations from the device and back
  PerTier<std::vector<Sums>> sums_;               // element i: over the first i chunks in the order in which they rest
};

}  // namespace protrain::plan
