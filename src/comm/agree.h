// What ranks agree on: small values, which every rank learns of every other.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "comm/channel.h"

namespace protrain::comm {

// Every rank's bytes, in the order of ranks. All ranks give the same number.
std::vector<std::vector<std::byte>> gather_bytes(Channel &channel, std::span<const std::byte> mine);

// Every rank's value, in the order of ranks.
template <typename T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather_values(Channel &channel, const T &mine) {
  std::vector<T> values;
  for (const std::vector<std::byte> &bytes : gather_bytes(channel, std::as_bytes(std::span(&mine, 1)))) {
    T &value = values.emplace_back(mine);
    std::memcpy(&value, bytes.data(), sizeof value);
  }
  return values;
}

// Every rank's text, in the order of ranks. Texts may differ in length.
std::vector<std::string> gather_texts(Channel &channel, const std::string &mine);

// Rank 0's text, on every rank. What the others give is not used.
std::string broadcast_text(Channel &channel, const std::string &text_of_rank_0);

// The name of this machine, which no other has. Containers with names of their own count as machines.
std::string name_of_machine();

// The ranks that run on the same machine as this one, itself included, ascending.
std::vector<int> ranks_of_this_machine(Channel &channel);

// Breaks the channel and tells the other ranks why, as far as there is memory to say it.
void abort_for(Channel &channel, const std::exception &why) noexcept;

// Returns when every rank has called it.
inline void barrier(Channel &channel) { gather_bytes(channel, {}); }

}  // namespace protrain::comm
