// All ranks of a session must read files of the same contents. Sums of the contents tell whether they do.
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

// Returns a short text for each file, by the name of what it is. Texts of different files differ. For the values of
// parameters, only the beginnings are read, since another training or another initialization changes all of them.
std::map<std::string, std::string> identities(const Draft &draft);

}  // namespace protrain::draft
