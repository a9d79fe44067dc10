// Says whether a checkpoint belongs to the model that a session trains, and if not, why.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "state/checkpoint.h"

namespace protrain::state {

using ByName = std::map<std::string, std::size_t>;

ByName index_of(const std::vector<Parameter> &parameters);

// Throws Code::mismatch if the checkpoint is not of the wanted model and optimizer. The error lists the first few
// differences. `path` names the checkpoint in the error.
void require_same(const std::string &path, const Description &saved, const Description &wanted);

}  // namespace protrain::state
