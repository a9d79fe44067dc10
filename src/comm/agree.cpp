#include "comm/agree.h"

namespace protrain::comm {

std::vector<std::vector<std::byte>> gather_bytes(Channel &channel, std::span<const std::byte> mine) {
  const auto ranks = static_cast<std::size_t>(channel.ranks());
  std::vector<std::vector<std::byte>> all(ranks, {mine.begin(), mine.end()});
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int r = 0; r < channel.ranks(); ++r) {
    if (r == channel.rank()) continue;
    std::vector<std::byte> &theirs = all[static_cast<std::size_t>(r)];
    sends.push_back({r, mine.data(), mine.size()});
    receives.push_back({r, theirs.data(), theirs.size()});
  }
  channel.exchange(sends, receives);
  return all;
}

std::vector<std::string> gather_texts(Channel &channel, const std::string &mine) {
  const std::vector<std::uint64_t> lengths = gather_values<std::uint64_t>(channel, mine.size());
  std::vector<std::string> all(lengths.size(), mine);
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int r = 0; r < channel.ranks(); ++r) {
    if (r == channel.rank()) continue;
    std::string &theirs = all[static_cast<std::size_t>(r)];
    theirs.resize(lengths[static_cast<std::size_t>(r)]);
    sends.push_back({r, std::as_bytes(std::span(mine)).data(), mine.size()});
    receives.push_back({r, std::as_writable_bytes(std::span(theirs)).data(), theirs.size()});
  }
  channel.exchange(sends, receives);
  return all;
}

}  // namespace protrain::comm
