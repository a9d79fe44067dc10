#include "draft/compile.h"

#include "draft/estimate.h"
#include "draft/refusal.h"

namespace protrain::draft {

Draft compile(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine) {
  Draft draft = estimate(settings, source, machine);
  machine.of_rank_0([&] {
    if (draft.decision.smallest && !draft.decision.found.best) refuse(settings, source, machine, draft);
    return std::string();
  });
  require_budget(settings, draft.profile, draft.programs.bytes);
  return draft;
}

}  // namespace protrain::draft
