// Exchanges of small values, by which ranks agree: every rank learns the values of all ranks.
#pragma once

#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/channel.h"

namespace protrain::comm {

// Returns every rank's bytes, in the order of ranks. `mine` must have the same size on all ranks.
std::vector<std::vector<std::byte>> gather_bytes(Channel &channel, std::span<const std::byte> mine);

// Returns every rank's value, in the order of ranks.
template <typename T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather_values(Channel &channel, const T &mine) {
  std::vector<T> values;
  for (const std::vector<std::byte> &bytes : gather_bytes(channel, std::as_bytes(std::span(&mine, 1)))) {
    T &value = values.emplace_back(mine);
    std::memcpy(&value, bytes.data(), sizeof value);
  }
  return values;
}

// Returns every rank's text, in the order of ranks. Texts may differ in length.
std::vector<std::string> gather_texts(Channel &channel, const std::string &mine);

// Returns rank 0's text, on every rank. The texts that other ranks pass are not used.
std::string broadcast_text(Channel &channel, const std::string &text_of_rank_0);

// Returns a name that no other machine has. A container with a host name of its own counts as a machine.
std::string name_of_machine();

// Returns the ranks that run on the same machine as this one, itself included, ascending.
std::vector<int> ranks_of_this_machine(Channel &channel);

// Returns the sentence that tells other ranks of an error: the error's text. The error's subject comes first if the
// text does not name it.
std::string sentence_of(const std::exception &why);

// Aborts the channel and tells the other ranks why. If memory is too short for the text, they are told "out of memory".
void abort_for(Channel &channel, const std::exception &why) noexcept;

// Returns when every rank has called it.
inline void barrier(Channel &channel) { gather_bytes(channel, {}); }

}  // namespace protrain::comm
