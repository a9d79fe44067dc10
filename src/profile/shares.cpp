#include <algorithm>
#include <cmath>

#include "profile/profile.h"

namespace protrain::profile {

namespace {

// Lowers the share of full speed that each of two queues keeps while the other works, because both use one resource. At
// full speed they need `wanted` of it together. If that is more than `capacity`, each share becomes capacity / wanted,
// unless it is lower already.
void share(Shares &shares, Queue a, Queue b, double capacity, double wanted) {
  if (capacity <= 0 || wanted <= capacity) return;
  for (const auto &[one, other] : {std::pair(a, b), std::pair(b, a)})
    shares[one][other] = std::min(shares[one][other], capacity / wanted);
}

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
    for (const Queue disk : {Queue::disk_read, Queue::disk_write}) {
      // If several queues work, a queue keeps the product of its shares beside each of them. compute_beside_disk is
      // what compute keeps beside both queues of the disk. So beside one of the two, it keeps the square root.
      shares[Queue::compute][disk] = std::sqrt(p.compute_beside_disk);
      shares[disk][Queue::compute] = p.disk_beside_compute;
    }
    shares[Queue::compute][Queue::comm] = p.compute_beside_link;
    shares[Queue::comm][Queue::compute] = p.link_beside_compute;
  }
  return shares;
}

}  // namespace protrain::profile
