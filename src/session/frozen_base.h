// FrozenBase: the memory of frozen weights that rest on a device whose memory is the host's. No step writes to this
// memory. So all ranks of a machine can share it, and so can all sessions of one process whose adapters change the same
// base.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "comm/channel.h"
#include "draft/draft.h"

namespace protrain::session {

// Returns a hash of the draft's frozen weights: of their values in the file, of their names, and of the formats that
// they are rounded to, such as nf4. Without adapters it covers only the weights that are rounded. Reads the file on up
// to `threads` threads.
std::uint64_t hash_of_base(const draft::Draft &draft, int threads);

class FrozenBase {
 public:
  // Returns all FrozenBases for this model that sessions of this process hold now. They differ in precision or layout.
  static std::vector<std::shared_ptr<FrozenBase>> of_model(const onnx_import::ModelSource &source);
  // Returns the memory for a draft of a session with one rank. `hash` is hash_of_base(). Drafts with the same hash and
  // layout share one memory. Without adapters nothing is shared, because then frozen weights can be written between
  // steps.
  static std::shared_ptr<FrozenBase> of_process(const draft::Draft &draft, const onnx_import::ModelSource &source,
                                                std::uint64_t hash);
  // Returns the memory for a draft of several ranks. The ranks of one machine share the same pages. Each rank writes
  // the same values there, so that no rank waits for another. If the system does not allow shared pages, each rank has
  // pages of its own.
  static std::shared_ptr<FrozenBase> of_ranks(const draft::Draft &draft, comm::Channel &channel);

  std::span<std::byte> bytes() const { return {memory_.data(), memory_.size()}; }
  // True if the draft has the same frozen weights at the same places, so that it can use this memory.
  bool holds(const draft::Draft &draft, std::uint64_t hash) const { return !key_.empty() && key_ == key(draft, hash); }
  // Calls `write`, which fills the memory, unless another session has done so. Waits while another session is writing.
  void fill(const std::function<void()> &write);

 private:
  FrozenBase(std::uint64_t bytes, std::string model, std::string key);
  static std::string key(const draft::Draft &draft, std::uint64_t hash);

  MemoryBlock memory_;
  const std::string model_;  // the source
  const std::string key_;    // names, places, types and hash of the weights; "": never shared within a process
  std::mutex filling_;
  bool filled_ = false;
};

}  // namespace protrain::session
