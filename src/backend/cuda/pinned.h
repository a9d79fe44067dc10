// Pinned memory of the host. If the system refuses to pin a range of memory in one call, parts of the range are pinned
// one after the other, until the system refuses a part.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "backend/backend.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/runtime.h"

namespace protrain::backend::cuda {

inline constexpr std::uint64_t kPinnedPart = kEmulated ? 16 << 10 : 1 << 30;  // bytes, whole pages

class PinnedMemory {
 public:
  std::uint64_t pin(std::byte *host, std::uint64_t bytes) {
    if (cuda::pin(host, bytes)) return bytes;
    std::uint64_t done = 0;
    while (done < bytes) {
      const std::uint64_t part = std::min(kPinnedPart, bytes - done);
      if (!cuda::pin(host + done, part)) break;
      done += part;
    }
    if (done > 0) {
      const std::unique_lock lock(mutex_);
      whole_[host] = done;
      for (std::uint64_t at = kPinnedPart; at < done; at += kPinnedPart) borders_.insert(host + at);
      if (done < bytes) borders_.insert(host + done);
    }
    return done;
  }
  void unpin(std::byte *host) {
    const std::unique_lock lock(mutex_);
    const auto in_parts = whole_.find(host);
    if (in_parts == whole_.end()) return cuda::unpin(host);
    for (std::uint64_t at = 0; at < in_parts->second; at += kPinnedPart) cuda::unpin(host + at);
    borders_.erase(borders_.upper_bound(host), borders_.upper_bound(host + in_parts->second));
    whole_.erase(in_parts);
  }

  // Cuts a copy at the borders of pinned parts, and calls act() with each of the resulting copies. CUDA refuses a copy
  // that begins in one part and ends in another.
  template <typename Act>
  void each_part(const Copy &copy, Act act) const {
    std::uint64_t done = 0;
    while (done < copy.bytes) {
      Copy part{static_cast<std::byte *>(copy.to) + done, static_cast<const std::byte *>(copy.from) + done,
                copy.bytes - done};
      part.bytes = std::min({part.bytes, to_border(part.to), to_border(part.from)});
      act(part);
      done += part.bytes;
    }
  }

 private:
  std::uint64_t to_border(const void *from) const {
    const std::shared_lock lock(mutex_);
    const auto next = borders_.upper_bound(static_cast<const std::byte *>(from));
    return next == borders_.end() ? ~std::uint64_t{0}
                                  : static_cast<std::uint64_t>(*next - static_cast<const std::byte *>(from));
  }

  mutable std::shared_mutex mutex_;             // queue workers copy at the same time as the issuing thread
  std::map<std::byte *, std::uint64_t> whole_;  // memory pinned in parts: first byte -> pinned bytes
  std::set<const std::byte *> borders_;         // between two parts, and after the last one
};

}  // namespace protrain::backend::cuda
