#include "draft/compile.h"

#include "draft/estimate.h"
#include "draft/refusal.h"

namespace protrain::draft {

Draft compile(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine) {
  Draft draft = estimate(settings, source, machine);
  if (draft.decision.smallest && !draft.decision.found.best) refuse(settings, source, machine, draft);
  require_budget(settings, draft.profile, draft.programs.bytes);
  return draft;
}

}  // namespace protrain::draft
