#include "draft/estimate.h"

#include "draft/micro_batch.h"
#include "draft/pipeline.h"

namespace protrain::draft {

Draft estimate(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine, Goal goal) {
  const std::optional<MicroBatch> settled = settle_micro_batch(settings, source, machine);
  if (!settled) return run_pipeline(settings, source, machine, goal);
  Settings bound = settings;
  bound.dims[settled->dim] = settled->samples;
  Draft draft = run_pipeline(bound, source, machine, goal);
  draft.micro_batch = static_cast<std::uint64_t>(settled->samples);
  return draft;
}

}  // namespace protrain::draft
