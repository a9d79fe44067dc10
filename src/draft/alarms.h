// Finds the alarms that the graph and the options show before the first step. session/step_alarms.h finds those that
// only steps show.
#pragma once

#include "draft/alarm.h"
#include "draft/loaded_model.h"
#include "draft/parameter_groups.h"
#include "grad/training_graph.h"

namespace protrain::draft {

// The graphs, the options and the findings that find_alarms() looks at.
struct AlarmFacts {
  const Settings &settings;
  const onnx_import::Model &file;
  const std::vector<passes::Finding> &findings;
  const grad::Training &training;
  const ParameterGroups &groups;
  const graph::Graph &outputs;  // as in LoadedModel
};

// Finds inputs that the loss does not depend on, trained parameters without a gradient, a detach() or a label_smoothing
// that the exporter dropped, groups whose learning rate is zero, and parameters that are frozen between trained ones of
// the same kind.
std::vector<Alarm> find_alarms(const AlarmFacts &facts);

}  // namespace protrain::draft
