// Export: writes the file that the session was created from, with the current parameters.
#pragma once

#include <string>
#include <vector>

#include "draft/draft.h"
#include "session/parameters.h"
#include "state/checkpoint.h"

namespace protrain::session {

struct ExportSource {
  const draft::Draft &draft;
  const Parameters &parameters;
  const state::Read &read;  // reads parts of the parameters
  bool stepped = false;     // some step has changed the parameters
};

void export_model(const ExportSource &from, const std::string &path);

// Writes the adapters in the form of PEFT, or as an .onnx_adapter file. Throws Code::unsupported if the session changes
// parameters other than the adapters' matrices.
void export_adapters(const ExportSource &from, const std::string &directory);

// Values for a parameter's weights.
struct AdapterValues {
  std::size_t parameter;
  std::vector<float> values;
};

// Reads the values of the file's adapters `from`, as new values for the session's adapters `to`. Both lists have the
// same modules in the same order. If the scales of two adapters differ, multiplies matrix B by scale(from) / scale(to),
// so that the change of the weights stays the same.
std::vector<AdapterValues> read_adapters(const draft::AdapterFile &file, const std::vector<passes::Adapter> &from,
                                         const std::vector<passes::Adapter> &to, const Parameters &parameters);

}  // namespace protrain::session
