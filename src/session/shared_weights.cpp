#include "session/shared_weights.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/shared_memory.h"
#include "comm/agree.h"

namespace protrain::session {

namespace {

constexpr std::uint64_t kLeast = 16 * SharedMemory::kPage;  // shorter runs are not worth a mapping

// Whole pages of this rank's memory.
struct Pages {
  std::byte *at;
  std::uint64_t bytes;
};

// The pages that hold nothing but frozen weights. They begin at the same element on every rank, because chunks that
// rest whole begin on a page.
std::vector<Pages> frozen_pages(const draft::Draft &draft, const run::Store &store) {
  const program::State &state = draft.programs.state;
  const graph::Graph &graph = draft.first().training.graph;
  std::vector<Pages> pages;
  for (std::size_t c = 0; c < draft.decision.plan.chunks.size(); ++c) {  // state is no frozen weight
    const program::Buffer &weights = state.buffers[index(state.chunks[c].weights)];
    if (state.chunks[c].sharded || weights.tier != Tier::device) continue;
    std::uint64_t begin = 0, end = 0;  // of a run of frozen parameters
    const auto close = [&] {
      const std::uint64_t from = round_up(begin, SharedMemory::kPage),
                          to = end / SharedMemory::kPage * SharedMemory::kPage;
      if (to >= from + kLeast) pages.push_back({store.address(weights, from), to - from});
    };
    for (const std::size_t p : draft.decision.plan.chunks[c].parameters) {
      const graph::Type &type = graph.value(graph.parameters[p]).type;
      const std::uint64_t at = state.parameters[p].whole_at;
      if (state.parameters[p].trained) {
        close();
        begin = end = at + byte_count(type.dtype, type.shape);
      } else {
        end = at + byte_count(type.dtype, type.shape);
      }
    }
    close();
  }
  return pages;
}

}  // namespace

std::uint64_t share_frozen_weights(const draft::Draft &draft, run::Store &store, comm::Channel &channel,
                                   bool reachable) {
  if (channel.ranks() == 1) return 0;
  const std::vector<Pages> pages = reachable ? frozen_pages(draft, store) : std::vector<Pages>();
  std::uint64_t bytes = 0;
  for (const Pages &run : pages) bytes += run.bytes;
  const std::vector<int> here = comm::ranks_of_this_machine(channel);
  const bool first = here.front() == channel.rank();
  std::optional<SharedMemory> memory;
  const auto attempt = [&](const auto &get) {
    try {
      if (bytes > 0 && here.size() > 1) memory.emplace(get());
    } catch (const Error &) {
    }
  };
  if (first) attempt([&] { return SharedMemory::create(bytes); });
  const std::vector<std::string> places = comm::gather_texts(channel, memory ? memory->place() : "");
  if (!first) attempt([&] { return SharedMemory::open(places[static_cast<std::size_t>(here.front())], bytes); });
  const std::vector<std::uint8_t> have = comm::gather_values<std::uint8_t>(channel, memory.has_value());
  if (!std::ranges::all_of(here, [&](int rank) { return have[static_cast<std::size_t>(rank)] != 0; })) return 0;
  std::uint64_t offset = 0;
  for (const Pages &run : pages) {
    memory->map_over(run.at, run.bytes, offset);
    offset += run.bytes;
  }
  return bytes;
}

}  // namespace protrain::session
