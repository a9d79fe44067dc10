// Export: writes the file that the session was created from, with the current parameters.
#pragma once

#include <string>

#include "draft/draft.h"
#include "session/parameters.h"

namespace protrain::session {

void export_model(const draft::Draft &draft, Parameters &parameters, const std::string &path);

}  // namespace protrain::session
