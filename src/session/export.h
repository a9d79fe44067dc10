// Export: the file that a session was made from, with the parameters as they are now.
#pragma once

#include <string>

#include "draft/draft.h"
#include "session/parameters.h"

namespace protrain::session {

void export_model(const draft::Draft &draft, Parameters &parameters, const std::string &path);

}  // namespace protrain::session
