// Export: writes the file that the session was created from, with the current parameters.
#pragma once

#include <string>

#include "draft/draft.h"
#include "session/parameters.h"
#include "state/checkpoint.h"

namespace protrain::session {

// `read` reads parts of the parameters.
void export_model(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                  const std::string &path);

// Writes the adapters in the form of PEFT. Code::state if there are none, unsupported if other parameters change too.
void export_adapters(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                     const std::string &directory);

}  // namespace protrain::session
