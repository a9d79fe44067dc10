// Vector clocks, one for each instruction. The clock of an instruction tells which other instructions are certainly
// over when this one starts, because of queue order and waits.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/queue.h"

namespace protrain::program {

// For each queue, 1 plus the position of the queue's last instruction that is certainly over; 0: none is over.
using VectorClock = PerQueue<std::size_t>;

class VectorClocks {
 public:
  explicit VectorClocks(std::size_t instructions) : clocks_(instructions) {}

  // Notes that instruction `i` comes after the previous instruction of its queue.
  void begin(std::size_t i, Queue queue) {
    if (const std::size_t last = last_[queue]; last > 0) join(i, last - 1, queue);
  }
  // Notes that `i` also comes after instruction `earlier` of `queue`, and so after all that `earlier` comes after.
  void join(std::size_t i, std::size_t earlier, Queue queue) {
    for (const Queue q : kQueues) clocks_[i][q] = std::max(clocks_[i][q], clocks_[earlier][q]);
    std::size_t &own = clocks_[i][queue];
    own = std::max(own, earlier + 1);
  }
  void end(std::size_t i, Queue queue) { last_[queue] = i + 1; }

  bool over(std::size_t earlier, Queue queue, std::size_t now) const {
    return earlier == now || clocks_[now][queue] > earlier;
  }

 private:
  std::vector<VectorClock> clocks_;
  VectorClock last_{};
};

}  // namespace protrain::program
