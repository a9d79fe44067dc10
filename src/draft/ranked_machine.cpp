#include "draft/ranked_machine.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "comm/agree.h"

namespace protrain::draft {

namespace {

// Parses the text that a rank has sent in require_same(). If it is no JSON object, the rank probably runs another
// release of the library, which may exchange other things in another order.
Json parsed(const std::string &text, std::size_t rank) {
  try {
    if (Json json = parse_json(text, "comm"); json.members() != nullptr) return json;
  } catch (const Error &) {
  }
  fail(Code::version, fmt::format("rank {}", rank),
       "rank {} sends what this release of the library does not expect; all ranks need the same release", rank);
}

// Returns the bytes that each rank sends to each other rank if all parameters are exchanged at once. All ranks get the
// least number of any rank, so that they agree even if one of them has another model, which is refused later.
std::uint64_t bytes_between(comm::Channel &channel, const std::vector<const graph::Graph *> &graphs) {
  std::uint64_t bytes = 0;
  if (!graphs.empty())
    for (const graph::ValueId p : graphs[0]->parameters) {
      const graph::Type &type = graphs[0]->value(p).type;
      bytes += byte_count(type.dtype, type.shape);
    }
  return std::ranges::min(comm::gather_values(channel, bytes)) / static_cast<std::uint64_t>(channel.ranks());
}

}  // namespace

std::string RankedMachine::of_rank_0(const std::function<std::string()> &make) {
  if (alone_) return make();
  std::string text;
  if (channel_.rank() == 0) {
    alone_ = true;
    text = make();
    alone_ = false;
  }
  return comm::broadcast_text(channel_, text);
}

profile::Profile RankedMachine::profile(const std::vector<const graph::Graph *> &graphs,
                                        const backend::Optimizer &optimizer) {
  if (alone_) return machine_.profile(graphs, optimizer);
  const std::vector<int> here = comm::ranks_of_this_machine(channel_);
  const std::uint64_t sharers = here.size();
  profile::Profile profile;
  if (here[0] == 0) {
    const auto place = std::ranges::find(here, channel_.rank()) - here.begin();
    machine_.measure_beside({.ranks = here.size(), .place = static_cast<std::size_t>(place)});
    profile = machine_.profile(graphs, optimizer);
  }
  profile = profile::from_json(comm::broadcast_text(channel_, profile::to_json(profile)));
  machine_.adopt(profile);
  // Measures the link before it reads the free memory, because the first exchanges take memory of the device.
  plan::Bytes own = machine_.measure_link(link_, bytes_between(channel_, graphs), profile);
  // Divides the host's memory and the disk among the ranks of one machine. On a CPU the device's memory is the host's,
  // so it is divided too.
  for (const Tier t : kTiers)
    if (t != Tier::device || profile.shares_memory) own[t] /= sharers;
  plan::Bytes least = own;
  for (const plan::Bytes &bytes : comm::gather_values(channel_, own))
    for (const Tier t : kTiers) least[t] = std::min(least[t], bytes[t]);
  profile.device_memory = least[Tier::device];
  profile.host_memory = least[Tier::host];
  profile.disk_memory = least[Tier::disk];
  // Each rank is a process of its own, so it leaves its own reserve, as on a CPU (budget.cpp).
  if (!profile.shares_memory) profile.host_reserve = profile::left_to_the_system(profile.host_memory);
  return profile;
}

void require_same(comm::Channel &channel, const std::map<std::string, std::string> &texts) {
  const std::vector<std::string> all = comm::gather_texts(channel, Json(texts).dump());
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const Json first = parsed(all[0], 0), other = parsed(all[r], r);
    for (const auto &[key, value] : *first.members()) {
      const Json *theirs = other.find(key);
      if (theirs != nullptr && theirs->dump() == value.dump()) continue;
      fail(Code::mismatch, key, "{} is {} on rank {} and {} on rank 0; all ranks need the same", key,
           theirs == nullptr ? "not set" : theirs->dump(), r, value.dump());
    }
    fail(Code::mismatch, "options", "rank {} has options that rank 0 does not have; all ranks need the same", r);
  }
}

}  // namespace protrain::draft
