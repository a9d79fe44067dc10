// Export: the file that the session was created from, with the present parameters.
#pragma once

#include <string>

#include "draft/draft.h"
#include "session/parameters.h"

namespace protrain::session {

void export_model(const draft::Draft &draft, Parameters &parameters, const std::string &path);

}  // namespace protrain::session
