#include "program/windows.h"

#include <algorithm>

#include "program/program.h"

namespace protrain::program {

namespace {

constexpr std::size_t kAhead = 2;  // chunks that are fetched ahead of the one in use: more would only hold memory

class Buffers {
 public:
  Buffers(const std::vector<std::vector<std::size_t>> &uses, std::size_t count)
      : uses_(uses), count_(count), next_(uses.size(), 0), open_(uses.size(), kNever) {}

  std::vector<Window> run() {
    std::vector<std::pair<std::size_t, std::size_t>> order;  // item, chunk
    for (std::size_t c = 0; c < uses_.size(); ++c)
      for (std::size_t item : uses_[c]) order.emplace_back(item, c);
    std::ranges::sort(order);
    for (const auto &[item, chunk] : order) use(chunk, item);
    return std::move(windows_);
  }

 private:
  void use(std::size_t chunk, std::size_t item) {
    ++next_[chunk];
    if (open_[chunk] == kNever) open(chunk, item);
    windows_[open_[chunk]].last_use = item;
  }

  void open(std::size_t chunk, std::size_t item) {
    std::size_t room_since = 0;
    while (resident_.size() >= std::max<std::size_t>(count_, 1)) {
      const std::size_t victim = farthest(item);
      if (victim == kNever)
        break;  // `item` itself needs every chunk on the device, so there are more chunks than buffers
      room_since = std::max(room_since, windows_[open_[victim]].last_use + 1);
      open_[victim] = kNever;
      std::erase(resident_, victim);
    }
    std::size_t fetch_at = std::min(room_since, item);
    if (!windows_.empty()) fetch_at = std::max(fetch_at, windows_.back().fetch_at);
    if (windows_.size() >= kAhead) fetch_at = std::max(fetch_at, windows_[windows_.size() - kAhead].first_use);
    open_[chunk] = windows_.size();
    resident_.push_back(chunk);
    windows_.push_back({.chunk = chunk, .fetch_at = std::min(fetch_at, item), .first_use = item, .last_use = item});
  }

  std::size_t next_use(std::size_t chunk) const {
    return next_[chunk] < uses_[chunk].size() ? uses_[chunk][next_[chunk]] : kNever;
  }

  // Returns the chunk that leaves the device to make room for a chunk that `item` needs; kNever: there is none. Chunks
  // that `item` needs stay. Among the others, picks the chunk whose next use is farthest away (Belady's rule: the uses
  // to come are known). If several chunks are never used again, picks the chunk whose last use came first, because its
  // buffer is free earliest.
  std::size_t farthest(std::size_t item) const {
    std::size_t found = kNever;
    for (std::size_t chunk : resident_) {
      const bool needed = next_use(chunk) == item || windows_[open_[chunk]].last_use == item;
      if (!needed && (found == kNever || goes_before(chunk, found))) found = chunk;
    }
    return found;
  }

  bool goes_before(std::size_t a, std::size_t b) const {
    if (next_use(a) != next_use(b)) return next_use(a) > next_use(b);
    return windows_[open_[a]].last_use < windows_[open_[b]].last_use;
  }

  const std::vector<std::vector<std::size_t>> &uses_;
  const std::size_t count_;
  std::vector<std::size_t> next_;      // per chunk: uses that are over
  std::vector<std::size_t> open_;      // per chunk: its current window
  std::vector<std::size_t> resident_;  // chunks
  std::vector<Window> windows_;
};

}  // namespace

std::vector<Window> windows(const std::vector<std::vector<std::size_t>> &uses, std::size_t buffers) {
  return Buffers(uses, buffers).run();
}

}  // namespace protrain::program
