// Checksums that tell whether all ranks of a session read files with the same contents, as they must.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "draft/draft.h"

namespace protrain::draft {

// A parameter whose values the model's file holds.
struct InFile {
  std::string name;
  std::uint64_t bytes;  // in the type that Model::read() gives
  bool frozen;
  const passes::Rounding *rounding;  // nullptr if the values keep the file's form
};
// Returns the parameters of the graph that is trained, without the matrices of adapters and the scales of rounded
// weights.
std::vector<InFile> parameters_in_file(const Draft &draft);

// Returns a short text for each file that the draft was made from. The keys are "model", "adapter" and "plan". Files
// with different contents almost certainly have different texts. Only the first 4 KiB of each parameter are read. That
// is enough, because another training or another initialization usually changes all values.
std::map<std::string, std::string> identities(const Draft &draft);

}  // namespace protrain::draft
