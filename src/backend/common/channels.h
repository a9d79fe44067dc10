// ChannelParts: the view of a tensor (N, C, d...) for kernels that work channel by channel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arith/math.h"
#include "base/shape.h"

namespace protrain::backend {

// The axes after the channel axis are merged into one axis of length `inner`. The samples of a channel are cut into
// parts, so that a few channels still keep many threads busy. The parts depend on the shape alone, and so does the
// order of sums.
struct ChannelParts {
  // `enough` is the number of parts that all channels together should have.
  ChannelParts(const Shape &shape, std::int64_t enough)
      : samples(shape.at(0)), count(shape.at(1)), inner(element_count({shape.begin() + 2, shape.end()})) {
    const std::int64_t wanted = (enough + count - 1) / std::max<std::int64_t>(count, 1);
    part = std::max<std::int64_t>(1, (samples + wanted - 1) / std::max<std::int64_t>(wanted, 1));
    parts = std::max<std::int64_t>(1, (samples + part - 1) / part);
  }

  PROTRAIN_HD std::int64_t elements() const { return samples * inner; }  // elements of a channel
  PROTRAIN_HD std::int64_t begin(std::int64_t sample, std::int64_t channel) const {
    return (sample * count + channel) * inner;
  }
  PROTRAIN_HD std::int64_t samples_in(std::int64_t number) const {
    return (number + 1) * part < samples ? part : samples - number * part;
  }

  std::int64_t samples, count, inner;
  std::int64_t part, parts;  // samples in a part (the last may have fewer); number of parts of a channel
};

}  // namespace protrain::backend
