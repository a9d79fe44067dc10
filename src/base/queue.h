// The queues that work is issued to. Programs name them, and backends run their work. The work of one queue runs in the
// order of issue; only waits order work of different queues. The disk has one queue for reads and one for writes. So a
// read never has to wait behind a write, which itself waits for an update.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/enum_array.h"

namespace protrain {

enum class Queue : std::uint8_t { compute, upload, download, host, disk_read, disk_write, comm };

template <typename T>
using PerQueue = EnumArray<Queue, 7, T>;
inline constexpr auto kQueues = all_values<Queue, 7>();
inline constexpr PerQueue<const char *> kQueueNames = {"compute",   "upload",     "download", "host",
                                                       "disk_read", "disk_write", "comm"};

constexpr bool is_of_disk(Queue queue) { return queue == Queue::disk_read || queue == Queue::disk_write; }

// Every buffer in an arena begins at a multiple of this many bytes. So the bits of a result cannot depend on where a
// plan put the operands.
inline constexpr std::size_t kAlignment = 64;

}  // namespace protrain
