// The queues that work is issued to. Programs name them, and backends run their work. The work of one queue runs in the
// order of issue; only waits order work of different queues.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/enum_array.h"

namespace protrain {

enum class Queue : std::uint8_t { compute, upload, download, host, disk, comm };

template <typename T>
using PerQueue = EnumArray<Queue, 6, T>;
inline constexpr auto kQueues = all_values<Queue, 6>();
inline constexpr PerQueue<const char *> kQueueNames = {"compute", "upload", "download", "host", "disk", "comm"};

// Every buffer in an arena begins at a multiple of this many bytes. So the bits of a result cannot depend on where a
// plan put the operands.
inline constexpr std::size_t kAlignment = 64;

}  // namespace protrain
