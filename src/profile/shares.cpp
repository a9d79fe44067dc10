#include <algorithm>

#include "profile/profile.h"

namespace protrain::profile {

namespace {

constexpr double kLeastShare = 0.05;  // of its speed that compute keeps beside a queue

// Lowers the shares of two queues that use the same resource. A queue's share is the fraction of its full speed that it
// keeps while the other queue works. At full speed the two queues together need `wanted` of the resource. If `wanted`
// is more than `capacity`, each share becomes capacity / wanted, unless it is lower already.
void share(Shares &shares, Queue a, Queue b, double capacity, double wanted) {
  if (capacity <= 0 || wanted <= capacity) return;
  for (const auto &[one, other] : {std::pair(a, b), std::pair(b, a)})
    shares[one][other] = std::min(shares[one][other], capacity / wanted);
}

// Returns the share of its speed that compute keeps beside a queue that works alone, at full speed. `measured` is its
// share beside a queue that was `times` slower. Each byte takes the same time of the cores, which copy and checksum it.
double beside_full_speed(double measured, double times) { return std::max(kLeastShare, 1 - (1 - measured) * times); }

}  // namespace

Shares shares(const Profile &p) {
  Shares shares;
  for (auto &row : shares) row.fill(1);
  share(shares, Queue::upload, Queue::download, p.both_ways, p.upload + p.download);
  share(shares, Queue::upload, Queue::download, p.host_bandwidth, p.upload + p.download);
  share(shares, Queue::host, Queue::upload, p.host_bandwidth, p.host_optimizer + p.upload);
  share(shares, Queue::host, Queue::download, p.host_bandwidth, p.host_optimizer + p.download);
  share(shares, Queue::disk_read, Queue::disk_write, p.disk_total(), p.disk_read + p.disk_write);
  if (!p.shares_cores) {
    share(shares, Queue::host, Queue::disk_read, p.host_bandwidth, p.host_optimizer + p.disk_read);
    share(shares, Queue::host, Queue::disk_write, p.host_bandwidth, p.host_optimizer + p.disk_write);
  }
  if (p.link <= p.upload) {
    share(shares, Queue::comm, Queue::upload, p.upload, p.upload + p.link);
    share(shares, Queue::comm, Queue::download, p.download, p.download + p.link);
  }
  if (p.shares_cores) {
    // compute_beside_disk was measured while the disk moved bytes in both directions.
    const double both_ways = p.disk_total() * p.disk_beside_compute;
    for (const auto &[disk, rate] : {std::pair(Queue::disk_read, p.disk_read), {Queue::disk_write, p.disk_write}}) {
      if (both_ways > 0) shares[Queue::compute][disk] = beside_full_speed(p.compute_beside_disk, rate / both_ways);
      shares[disk][Queue::compute] = p.disk_beside_compute;
    }
    shares[Queue::compute][Queue::comm] = beside_full_speed(p.compute_beside_link, 1 / p.link_beside_compute);
    shares[Queue::comm][Queue::compute] = p.link_beside_compute;
  }
  return shares;
}

}  // namespace protrain::profile
