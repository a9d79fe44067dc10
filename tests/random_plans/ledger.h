// Compares the memory that a Program says it uses with the memory that its execution writes.
#pragma once

#include <algorithm>
#include <cstring>

#include "lives.h"
#include "run/store.h"

namespace protrain::test {

// Fills the memory of device and host with a pattern, except the bytes that a buffer holds. Finds after each
// instruction which bytes no longer have the pattern. The Program must not use the disk, whose bytes the ledger cannot
// see.
class Ledger {
 public:
  using UsedBytes = PerTier<std::uint64_t>;

  Ledger(const program::Program &program, run::Store &store, int pattern)
      : program_(program),
        store_(store),
        lives_(lives_of(program)),
        pattern_(static_cast<std::byte>(pattern)),
        written_(program.buffers.size()) {
    for (const Tier t : kTiers) {
      held_[t].assign(program.arena_bytes[t] - program.state_bytes[t], false);
      untouched_[t].assign(held_[t].size(), pattern_);
      if (t != Tier::disk && !held_[t].empty()) std::fill_n(first_byte(t), held_[t].size(), pattern_);
    }
  }

  void instruction_is_over() {
    const std::size_t i = history_.size();
    each_transient([&](std::size_t b) { return lives_[b].first == i; }, [&](std::size_t b) { take(b); });
    for (const Tier t : kTiers) look_for_strays(t);
    history_.push_back(held_bytes_);
    each_transient([&](std::size_t b) { return lives_[b].last == i; }, [&](std::size_t b) { give_back(b); });
  }

  // For each instruction, the bytes that buffers hold while it runs, without the state.
  const std::vector<UsedBytes> &history() const { return history_; }
  // For each byte of each buffer, true if it differs from the pattern after the first instruction that uses the buffer.
  const std::vector<std::vector<bool>> &written() const { return written_; }
  // Bytes that changed although no buffer held them.
  std::uint64_t strays() const { return strays_; }
  const std::vector<Life> &lives() const { return lives_; }

 private:
  std::byte *first_byte(Tier t) const { return store_.at(t, program_.state_bytes[t]); }

  template <typename Which, typename Do>
  void each_transient(Which &&which, Do &&act) {
    for (std::size_t b = 0; b < lives_.size(); ++b)
      if (!program_.buffers[b].persistent && lives_[b].first != kNever && which(b)) act(b);
  }

  void take(std::size_t b) {
    const program::Buffer &buffer = program_.buffers[b];
    const Tier t = buffer.tier;
    const std::uint64_t from = buffer.offset - program_.state_bytes[t];
    for (std::uint64_t i = 0; i < buffer.bytes; ++i) {
      held_bytes_[t] += !held_[t][from + i];  // bytes that two buffers hold count once
      held_[t][from + i] = true;
      written_[b].push_back(first_byte(t)[from + i] != pattern_);
    }
  }

  void give_back(std::size_t b) {
    const program::Buffer &buffer = program_.buffers[b];
    const Tier t = buffer.tier;
    const std::uint64_t from = buffer.offset - program_.state_bytes[t];
    std::fill_n(held_[t].begin() + static_cast<std::ptrdiff_t>(from), buffer.bytes, false);
    std::fill_n(first_byte(t) + from, buffer.bytes, pattern_);
    held_bytes_[t] -= buffer.bytes;
  }

  void look_for_strays(Tier t) {
    const std::size_t end = held_[t].size();
    for (std::size_t from = next(t, false, 0); from < end;) {
      const std::size_t to = next(t, true, from);
      const std::byte *bytes = first_byte(t) + from;
      if (std::memcmp(bytes, untouched_[t].data(), to - from) != 0)
        strays_ += std::count_if(bytes, bytes + (to - from), [&](std::byte byte) { return byte != pattern_; });
      from = next(t, false, to);
    }
  }

  // Returns the first byte, from `from` on, that a buffer holds. If `held` is false, returns the first byte that no
  // buffer holds. Returns the number of bytes if there is no such byte.
  std::size_t next(Tier t, bool held, std::size_t from) const {
    const std::size_t end = held_[t].size();
    if (from == end) return end;  // data() may be null
    const char *bytes = held_[t].data();
    const void *found = std::memchr(bytes + from, held, end - from);
    return found == nullptr ? end : static_cast<std::size_t>(static_cast<const char *>(found) - bytes);
  }

  const program::Program &program_;
  run::Store &store_;
  std::vector<Life> lives_;
  std::byte pattern_;
  PerTier<std::vector<char>> held_;            // for each byte after the state: whether a buffer holds it
  PerTier<std::vector<std::byte>> untouched_;  // as many bytes of the pattern
  UsedBytes held_bytes_{};
  std::vector<UsedBytes> history_;
  std::vector<std::vector<bool>> written_;
  std::uint64_t strays_ = 0;
};

}  // namespace protrain::test
