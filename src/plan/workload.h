// Workload: how long each queue works for each chunk, apart from the forward and backward of its blocks. These are the
// parts of the closed form (cost.h) that depend neither on the modes of blocks nor on where chunks rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/chunking.h"

namespace protrain::plan {

// Seconds of work on each queue.
struct QueueSeconds {
  double compute = 0, up = 0, down = 0, read = 0, write = 0, host = 0, comm = 0;  // read, write: the disk's

  QueueSeconds operator+(const QueueSeconds &other) const {
    return {compute + other.compute, up + other.up,     down + other.down, read + other.read,
            write + other.write,     host + other.host, comm + other.comm};
  }
  QueueSeconds operator*(double share) const {
    return {compute * share, up * share, down * share, read * share, write * share, host * share, comm * share};
  }
};

// One Workload is made for one chunking, one order of updates and one n_whole. It serves all choices that differ in
// other fields.
class Workload {
 public:
  // The work for one chunk that rests in one tier.
  struct Chunk {
    QueueSeconds fetch;      // eq. 4 and 7: the weights move to the device, and ranks exchange them
    double fetch_alone = 0;  // longest() of `fetch`
    QueueSeconds update_on_device, update_on_host;  // a persistent chunk is always updated on the device
    double gradient_down = 0;                       // seconds, if the gradient leaves the device
    double gradient_write = 0, gradient_comm = 0;   // seconds: to the disk, and between ranks
  };

  // `base` gives order, n_deferred and n_whole, as for Footprint. `chunking` must outlive the Workload.
  Workload(const Chunking &chunking, const Choice &base);

  const Chunking &chunking() const { return chunking_; }
  const Chunk &of(std::size_t chunk, Tier tier) const { return chunks_[tier][chunk]; }

  // Returns the seconds until all queues are done that start at once. If the device has cores of its own, each queue
  // runs beside all others, but uploads and downloads together may be slower than each alone. On shared cores, compute,
  // copies and the host's optimizer take turns. Only the disk and the exchanges between ranks run beside them.
  double longest(const QueueSeconds &work) const;
  // Returns the seconds that the disk takes for reads and writes that run at the same time. Alone, the reads would take
  // `read` seconds and the writes `write` seconds.
  double disk_seconds(double read, double write) const;

 private:
  Chunk chunk_in(std::size_t chunk, Tier tier) const;
  QueueSeconds fetch(std::size_t chunk, Tier tier) const;
  QueueSeconds update_on_device(std::size_t chunk, Tier tier) const;
  QueueSeconds update_on_host(std::size_t chunk, Tier tier) const;
  double exchange(std::uint64_t bytes) const;
  std::uint64_t brought(std::size_t chunk) const;

  const Chunking &chunking_;
  const OptimizerOrder order_;
  const bool defers_, shards_all_;
  double up_both_ways_ = 0, down_both_ways_ = 0;  // the rate of one way, over that of both ways together
  PerTier<std::vector<Chunk>> chunks_;
};

}  // namespace protrain::plan
