#include "comm/agree.h"

#include <unistd.h>

#include <array>
#include <new>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/sentence.h"

namespace protrain::comm {

namespace {

// Copies rank 0's `bytes` into the `bytes` of all other ranks.
void broadcast(Channel &channel, std::span<std::byte> bytes) {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  if (channel.rank() != 0) receives.push_back({0, bytes.data(), bytes.size()});
  for (int r = 1; r < channel.ranks() && channel.rank() == 0; ++r) sends.push_back({r, bytes.data(), bytes.size()});
  channel.exchange(sends, receives);
}

}  // namespace

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

std::string broadcast_text(Channel &channel, const std::string &text_of_rank_0) {
  std::string text = channel.rank() == 0 ? text_of_rank_0 : std::string();
  std::uint64_t length = text.size();
  broadcast(channel, std::as_writable_bytes(std::span(&length, 1)));
  text.resize(length);
  broadcast(channel, std::as_writable_bytes(std::span(text)));
  return text;
}

// Adds the machine's boot id to the host name, because two machines may have the same host name. The kernel draws the
// boot id at random when it starts.
std::string name_of_machine() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + ' ' + cgroup::text_of("/proc/sys/kernel/random/boot_id");
}

std::string sentence_of(const std::exception &why) {
  const auto *error = dynamic_cast<const Error *>(&why);
  return error == nullptr ? why.what() : sentence_about(error->subject, error->text);
}

void abort_for(Channel &channel, const std::exception &why) noexcept {
  try {
    channel.abort(dynamic_cast<const std::bad_alloc *>(&why) != nullptr ? "out of memory" : sentence_of(why));
  } catch (const std::bad_alloc &) {  // a long text needs memory, and a short one none
    channel.abort("out of memory");
  }
}

std::vector<int> ranks_of_this_machine(Channel &channel) {
  const std::vector<std::string> names = gather_texts(channel, name_of_machine());
  std::vector<int> ranks;
  for (int r = 0; r < channel.ranks(); ++r)
    if (names[static_cast<std::size_t>(r)] == names[static_cast<std::size_t>(channel.rank())]) ranks.push_back(r);
  return ranks;
}

}  // namespace protrain::comm
