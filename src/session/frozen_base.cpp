#include "session/frozen_base.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/on_threads.h"
#include "base/shared_memory.h"
#include "comm/agree.h"
#include "draft/identity.h"

namespace protrain::session {

namespace {

// All bases of this process that sessions may share. The list is never destroyed, because a thread may still make a
// session while the process exits.
struct AllBases {
  std::mutex mutex;
  std::vector<std::weak_ptr<FrozenBase>> bases;
};
AllBases &all_bases() {
  static AllBases &all = *new AllBases;
  return all;
}

// Returns the bases for which is(base) is true, and drops from the list those that no session uses any more. The caller
// holds the mutex.
template <typename Is>
std::vector<std::shared_ptr<FrozenBase>> find_bases(Is &&is) {
  std::erase_if(all_bases().bases, [](const auto &base) { return base.expired(); });
  std::vector<std::shared_ptr<FrozenBase>> found;
  for (const auto &one : all_bases().bases)
    if (std::shared_ptr<FrozenBase> base = one.lock(); base && is(*base)) found.push_back(std::move(base));
  return found;
}

std::string model_name(const onnx_import::ModelSource &source) {
  if (source.bytes()) return fmt::format("{:016x} in {}", checksum(*source.bytes()), source.directory());
  std::error_code ignored;
  return std::filesystem::weakly_canonical(source.path(), ignored).string();
}

// Returns the parameters of the base whose values the model's file holds. Without adapters, only rounded weights belong
// to the base. All other frozen weights are then parameters of the session, and a checkpoint holds them.
std::vector<draft::InFile> base_in_file(const draft::Draft &draft) {
  std::vector<draft::InFile> base = draft::parameters_in_file(draft);
  std::erase_if(base, [&](const draft::InFile &parameter) {
    return !parameter.frozen || (draft.adapters.empty() && parameter.rounding == nullptr);
  });
  return base;
}

}  // namespace

std::uint64_t hash_of_base(const draft::Draft &draft, int threads) {
  constexpr std::uint64_t kPartBytes = 1 << 20;
  const std::vector<draft::InFile> base = base_in_file(draft);
  std::vector<std::string> digests(base.size());
  on_threads(base.size(), threads, "protrain-read", [&](std::size_t i) {
    std::vector<std::byte> part(std::min(base[i].bytes, kPartBytes));
    Digest digest;
    for (std::uint64_t at = 0; at < base[i].bytes; at += part.size()) {
      part.resize(std::min<std::uint64_t>(base[i].bytes - at, part.size()));
      draft.file->read(draft.in_file(base[i].name), at, part);
      digest.add(part);
    }
    digests[i] = base[i].name + digest.finish();
    if (base[i].rounding != nullptr) digests[i] += base[i].rounding->name;
  });
  std::string all;
  for (const std::string &digest : digests) all += digest;
  return checksum(std::as_bytes(std::span(all)));
}

FrozenBase::FrozenBase(std::uint64_t bytes, std::string model, std::string key)
    : memory_(bytes, "frozen weights"), model_(std::move(model)), key_(std::move(key)) {}

std::string FrozenBase::key(const draft::Draft &draft, std::uint64_t hash) {
  const program::State &state = draft.programs.state;
  const graph::Graph &graph = draft.first().training.graph;
  if (draft.adapters.empty() || state.frozen_bytes == 0) return "";
  std::vector<std::pair<std::uint64_t, std::string>> places;
  for (const program::State::Parameter &parameter : state.parameters) {
    const program::Buffer &weights = state.buffers[index(state.chunks[parameter.chunk].weights)];
    const std::uint64_t at = weights.offset + parameter.whole_at;
    if (weights.tier != Tier::device || at >= state.frozen_bytes) continue;
    const graph::Value &value =
        graph.value(graph.parameters[static_cast<std::size_t>(&parameter - state.parameters.data())]);
    places.emplace_back(at, fmt::format("{} {} {}\n", at, to_text(value.type), value.name));
  }
  std::ranges::sort(places);
  std::string key = fmt::format("{:016x} {}\n", hash, state.frozen_bytes);
  for (const auto &[at, text] : places) key += text;
  return key;
}

std::vector<std::shared_ptr<FrozenBase>> FrozenBase::of_model(const onnx_import::ModelSource &source) {
  const std::lock_guard lock(all_bases().mutex);
  if (all_bases().bases.empty()) return {};
  return find_bases([&, name = model_name(source)](const FrozenBase &base) { return base.model_ == name; });
}

std::shared_ptr<FrozenBase> FrozenBase::of_process(const draft::Draft &draft, const onnx_import::ModelSource &source,
                                                   std::uint64_t hash) {
  const std::string key = FrozenBase::key(draft, hash);
  const std::lock_guard lock(all_bases().mutex);
  if (!key.empty())
    if (const auto same = find_bases([&](const FrozenBase &base) { return base.key_ == key; }); !same.empty())
      return same.front();
  std::shared_ptr<FrozenBase> made(new FrozenBase(draft.programs.state.frozen_bytes, model_name(source), key));
  if (!key.empty()) all_bases().bases.push_back(made);
  return made;
}

std::shared_ptr<FrozenBase> FrozenBase::of_ranks(const draft::Draft &draft, comm::Channel &channel) {
  std::shared_ptr<FrozenBase> base(new FrozenBase(draft.programs.state.frozen_bytes, "", ""));
  const std::uint64_t bytes = base->bytes().size();
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
  if (std::ranges::all_of(here, [&](int rank) { return have[static_cast<std::size_t>(rank)] != 0; }) && memory)
    memory->map_over(base->bytes().data(), bytes, 0);
  return base;
}

void FrozenBase::fill(const std::function<void()> &write) {
  const std::lock_guard lock(filling_);
  if (!filled_) write();
  filled_ = true;
}

}  // namespace protrain::session
