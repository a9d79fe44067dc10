// Footprint: the closed form for memory. It estimates the bytes of a step from a Choice (plan.h) by the equations 8 to
// 11 of ProTrain (arXiv 2406.08334). Like the closed form for time (cost.h), it only ranks choices: the laid-out
// Program decides whether a choice fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/chunking.h"

namespace protrain::plan {

// Footprint estimates the bytes of choices. One Footprint is made for one chunking, one set of block modes, one order
// of updates and one share of updates on the device. The bytes that depend on n_persist, n_host and n_buffer are then
// differences of prefix sums, so an estimate is cheap and the search can afford one for every point.
class Footprint {
 public:
  // `base` gives order, n_whole, n_swap, n_checkpoint and n_selective. The last three add up to at most the number of
  // blocks. n_whole is 0 if persistent chunks are sharded, and -1 if they are whole. In barrier order, updates are
  // deferred if n_deferred of `base` is not 0. In overlap order, n_deferred of `base` is ignored, because CostModel
  // finds this number.
  //   `on_device` is the share, from 0 to 1, of non-persistent chunks that are updated on the device. The other
  // non-persistent chunks are updated on the host. `chunking` must outlive the Footprint.
  Footprint(const Chunking &chunking, const Choice &base, double on_device);

  std::size_t chunks() const { return chunking_.chunks.size(); }
  // Returns the number of chunks whose weights need buffers on the device if `persist` chunks persist.
  std::size_t buffered(std::size_t persist) const { return chunks() - whole(persist); }
  // Returns how many of `persist` persistent chunks the device holds whole: all, or none if they are sharded.
  std::size_t whole(std::size_t persist) const { return chunking_.shards_all(base_) ? 0 : persist; }
  // Returns how many successive chunks fit in `room` bytes of host memory, in resting order. The first of them is the
  // chunk after the `persist` persistent chunks.
  std::size_t fitting_host(std::size_t persist, std::uint64_t room) const;
  // Returns how many buffers fit if the device has `room` bytes. 0: not even one.
  std::size_t fitting_buffers(std::size_t persist, std::size_t on_host, std::uint64_t room) const;
  Bytes bytes(std::size_t persist, std::size_t on_host, std::size_t buffers) const;

  const Chunking &chunking() const { return chunking_; }
  const Choice &base() const { return base_; }
  double on_device() const { return on_device_; }
  const std::vector<BlockMode> &modes() const { return modes_; }
  // The tier that swapped activations go to.
  Tier swap_tier() const { return chunking_.terms.shared_memory ? Tier::disk : Tier::host; }

 private:
  // Bytes that do not depend on where chunks rest.
  struct Held {
    std::uint64_t activations = 0, swapped = 0;  // activations: on the device; swapped: in the tier that swaps go to
    std::uint64_t in_flight = 0;                 // on the device, for the chunk that is being updated
  };
  // Prefix sums of the bytes of chunks at rest on one rank, with whole weights, and with the rank's shards of them.
  struct Resting {
    std::vector<std::uint64_t> whole = {0}, shard = {0};
  };
  void hold();

  const Chunking &chunking_;
  const Choice base_;
  const double on_device_;
  const std::vector<BlockMode> modes_;
  Resting rest_;
  Held held_;
};

}  // namespace protrain::plan
